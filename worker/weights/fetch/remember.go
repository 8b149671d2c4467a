package fetch

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// requestKey is what this request is remembered by.
func (j *job) requestKey() string {
	parts := []string{"request", j.uri.String(), j.request.File, strings.Join(j.request.Allow, ","), strings.ToLower(j.request.Digest)}
	for _, v := range []string{"HF_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		parts = append(parts, j.f.getenv(v))
	}
	if j.uri.Scheme == source.HTTPS {
		parts = append(parts, j.uri.URL.RawQuery)
	}
	return cache.Key(parts...)
}

// remembered returns the model that the request led to before, if all of it is in the cache. settled asks for one that can't
// have changed since: then the source needn't be asked.
func (j *job) remembered(settled bool) (string, bool) {
	fact, ok := j.cache.Known(j.requestKey())
	if !ok || len(fact.Files) == 0 || settled && !j.settled(fact) {
		return "", false
	}
	sums := make([]string, len(fact.Files))
	var total int64
	for i, f := range fact.Files {
		sums[i] = f.SHA256
		total += f.Bytes
	}
	if err := j.cache.Use(sums...); err != nil { // before the look, so that nothing goes in between
		return "", false
	}
	for _, f := range fact.Files {
		if _, ok := j.cache.Blob(f.SHA256, f.Bytes); !ok || j.checkHead(f) != nil {
			return "", false
		}
	}
	j.meter.begin(Verifying, total)
	p, err := j.assemble(fact.Files, fact.Single)
	return p, err == nil
}

// settled reports whether the request names its content: a commit, or a digest.
func (j *job) settled(fact cache.Fact) bool {
	switch j.uri.Scheme {
	case source.HF:
		return fact.Revision == j.uri.Revision
	case source.OCI:
		return fact.Revision == j.uri.Digest || strings.EqualFold(fact.Revision, j.request.Digest)
	}
	return len(fact.Files) == 1 && sumOf(j.request.Digest) == fact.Files[0].SHA256
}

// assemble makes the folder of a model and returns its path, or that of its only file.
func (j *job) assemble(links []cache.Link, single bool) (string, error) {
	if single {
		links = []cache.Link{{Name: path.Base(links[0].Name), SHA256: links[0].SHA256, Bytes: links[0].Bytes}}
	}
	dir, err := j.cache.Model(links)
	if err != nil || !single {
		return dir, err
	}
	return filepath.Join(dir, links[0].Name), nil
}
