package fetch

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// rejected is how long a file that was not what it should be is not fetched again: a mirror may be mended meanwhile, and
// asking all the time would fetch it all the time.
const rejected = 15 * time.Minute

// job is one Ensure.
type job struct {
	f       *Fetcher
	cache   *cache.Cache
	src     source.Source
	uri     source.URI
	request Request
	meter   *meter
	retry   *retry
	whole   bool // the source turned out to send no parts
}

// run returns the path of the model. A source that changes meanwhile is listed once more.
func (j *job) run(ctx context.Context) (string, error) {
	if path, ok := j.remembered(true); ok {
		return path, nil
	}
	for again := false; ; again = true {
		path, err := j.once(ctx)
		var bad *source.Error
		if !again && errors.As(err, &bad) && (bad.Kind == source.Changed || bad.Kind == source.NoRanges) {
			j.whole = j.whole || bad.Kind == source.NoRanges
			j.meter.note("the source changed while it was fetched: it is looked at once more")
			continue
		}
		return path, err
	}
}

func (j *job) once(ctx context.Context) (string, error) {
	j.meter.begin(Listing, 0)
	var l source.Listing
	err := j.retry.do(ctx, func(ctx context.Context) (_ bool, err error) {
		l, err = j.src.List(ctx)
		return false, err
	})
	var away *source.Error
	if errors.As(err, &away) && away.Temporary() {
		if path, ok := j.remembered(false); ok {
			j.meter.note(away.Says + "; the weights are the ones that were fetched before")
			return path, nil
		}
	}
	if err != nil {
		return "", err
	}
	if err := j.checkRevision(l); err != nil {
		return "", err
	}
	links, single, err := j.files(ctx, l)
	if err != nil {
		return "", err
	}
	path, err := j.assemble(links, single)
	if err != nil {
		return "", err
	}
	return path, j.cache.Learn(j.requestKey(), cache.Fact{Files: links, Single: single, Revision: l.Revision, At: j.f.clock.Now()})
}

// checkRevision compares the digest that is wanted of an image with that of what its tag led to.
func (j *job) checkRevision(l source.Listing) error {
	if j.uri.Scheme != source.OCI || j.request.Digest == "" || strings.EqualFold(l.Revision, j.request.Digest) {
		return nil
	}
	return refuse(DigestMismatch, "%s is another manifest: expected %s, found %s", j.uri, j.request.Digest, l.Revision)
}

// files gets the files that the request wants of a listing.
func (j *job) files(ctx context.Context, l source.Listing) (links []cache.Link, single bool, err error) {
	if slices.ContainsFunc(l.Files, func(f source.File) bool { return f.Archive != "" }) {
		if l.Files, err = j.unpacked(ctx, l.Files); err != nil {
			return nil, false, err
		}
	}
	chosen, err := choose(l.Files, j.request, j.uri.String())
	if err != nil {
		return nil, false, err
	}
	for i, f := range chosen.files {
		if chosen.files[i], err = j.described(ctx, f, len(chosen.files)); err != nil {
			return nil, false, err
		}
	}
	if err := j.room(chosen.files); err != nil {
		return nil, false, err
	}
	for _, f := range chosen.files {
		sum, err := j.file(ctx, f, j.commit)
		if err != nil {
			return nil, false, err
		}
		link := cache.Link{Name: f.Name, SHA256: sum, Bytes: f.Bytes}
		if err := j.checkHead(link); err != nil {
			return nil, false, err
		}
		links = append(links, link)
	}
	return links, chosen.single, checkIndex(j, links)
}

// described returns f with size and digest, its own or the one that is wanted.
func (j *job) described(ctx context.Context, f source.File, files int) (source.File, error) {
	name := f.Name
	err := j.retry.do(ctx, func(ctx context.Context) (_ bool, err error) {
		f, err = j.src.Stat(ctx, f)
		return false, err
	})
	if err != nil {
		return f, err
	}
	wanted := sumOf(j.request.Digest)
	switch {
	case f.Bytes == 0:
		return f, refuse(Truncated, "%s: %s is empty", j.uri, name)
	case f.Bytes > maxBytes:
		return f, j.tooLarge(f)
	case wanted == "" || j.uri.Scheme == source.OCI:
		return f, nil
	case files > 1:
		return f, refuse(DigestMismatch, "%s: a digest is wanted, but the model has %d files: name one, or a revision", j.uri, files)
	case f.SHA256 != "" && f.SHA256 != wanted:
		return f, refuse(DigestMismatch, "%s: %s has another digest: expected sha256:%s, the source says sha256:%s", j.uri, name, wanted, f.SHA256)
	}
	f.SHA256 = wanted
	return f, nil
}

// maxBytes bounds a file: what a source claims is added up and allocated for.
const maxBytes = 16 << 40

func (j *job) tooLarge(f source.File) error {
	return refuse(Unsupported, "%s: %s has %d bytes, expected at most %d", j.uri, f.Name, f.Bytes, int64(maxBytes))
}

// room makes sure that all files find room, before the first byte of any.
func (j *job) room(files []source.File) error {
	var need, total int64
	var sums, keys []string
	for _, f := range files {
		total += f.Bytes
		if sum, ok := j.have(f); ok {
			sums = append(sums, sum)
			continue
		}
		keys = append(keys, key(f))
		need += max(f.Bytes-j.cache.There(key(f)), 0)
	}
	j.meter.begin(Fetching, total)
	if err := j.cache.Use(sums...); err != nil {
		return err
	}
	return j.cache.Room(need, keys...)
}

// key is what f is called on its way.
func key(f source.File) string {
	switch {
	case f.SHA256 != "":
		return f.SHA256
	case f.GitOID != "":
		return cache.Key("git", f.GitOID)
	}
	return cache.Key("source", f.Identity, f.Version, strconv.FormatInt(f.Bytes, 10))
}

// badKey is what it is remembered by that the source's f is not what it should be. Another source of an equal file is not
// judged by it.
func badKey(f source.File) string { return cache.Key("bad", f.Identity, f.Version, expected(f)) }

// have returns the SHA-256 of f where it is in the cache.
func (j *job) have(f source.File) (sum string, ok bool) {
	sum = f.SHA256
	if sum == "" {
		fact, known := j.cache.Known(key(f))
		if !known {
			return "", false
		}
		sum = fact.SHA256
	}
	_, ok = j.cache.Blob(sum, f.Bytes)
	return sum, ok
}

// file makes sure that f is there and returns its SHA-256. When it was fetched, and is what it should be, keep gets it; it
// ends with keep.
func (j *job) file(ctx context.Context, f source.File, keep func(source.File, *cache.Partial, string) error) (string, error) {
	if sum, ok := j.have(f); ok {
		j.meter.finished(f.Bytes)
		return sum, j.cache.Use(sum)
	}
	lock, err := j.cache.Lock(ctx, key(f), func(h cache.Holder) { j.meter.file(Waiting, f.Name, min(h.Done, f.Bytes)) })
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	if sum, ok := j.have(f); ok { // who had the lock before has fetched it
		j.meter.finished(f.Bytes)
		return sum, j.cache.Use(sum)
	}
	if fact, ok := j.cache.Known(badKey(f)); ok {
		if left := fact.At.Add(rejected).Sub(j.f.clock.Now()); left > 0 {
			return "", refuse(DigestMismatch, "%s: what was fetched as %s is another file: expected %s, found sha256:%s; it is not fetched again for %s",
				j.uri, f.Name, expected(f), fact.SHA256, left.Round(time.Second))
		}
	}
	sum, err := j.fetch(ctx, f, lock, keep)
	if errors.Is(err, errResumed) { // what an earlier process left was damaged
		sum, err = j.fetch(ctx, f, lock, keep)
	}
	if err != nil {
		return "", err
	}
	j.meter.finished(f.Bytes)
	return sum, nil
}

// errResumed: a file that was begun by an earlier process is not what it should be.
var errResumed = errors.New("what was resumed is damaged")

// fetch downloads f, under its lock.
func (j *job) fetch(ctx context.Context, f source.File, lock *cache.Lock, keep func(source.File, *cache.Partial, string) error) (string, error) {
	f.Whole = f.Whole || j.whole
	p, err := j.cache.Partial(key(f), f.Bytes, resumable(f))
	if err != nil {
		return "", err
	}
	defer p.Close() //nolint:errcheck // the journal only saves bytes
	j.meter.file(Fetching, f.Name, p.There())
	lock.Progress(p.There(), f.Bytes)
	d := &download{
		src: j.src, file: f, to: p, retry: j.retry, clock: j.f.clock, connections: j.f.o.Connections, spanPieces: j.f.tune.spanPieces,
		count: func(n int64) {
			j.meter.add(n)
			lock.Progress(j.meter.within(), f.Bytes)
		},
		verifying: func() { j.meter.file(Verifying, f.Name, f.Bytes) },
	}
	found, err := d.run(ctx)
	var full *cache.NoSpaceError
	var changed *source.Error
	switch {
	case errors.As(err, &full), errors.As(err, &changed) && changed.Kind == source.Changed:
		p.Discard() // the room is wanted by others; the bytes are of another file
		return "", err
	case err != nil:
		return "", err
	}
	if f.SHA256 != "" && found.sha256 != f.SHA256 || f.GitOID != "" && f.SHA256 == "" && found.git != f.GitOID {
		p.Discard()
		if p.Resumed() {
			return "", errResumed
		}
		if err := j.cache.Learn(badKey(f), cache.Fact{SHA256: found.sha256, At: j.f.clock.Now()}); err != nil {
			return "", err
		}
		return "", refuse(DigestMismatch, "%s: %s has another digest: expected %s, found sha256:%s", j.uri, f.Name, expected(f), found.sha256)
	}
	return found.sha256, keep(f, p, found.sha256)
}

// resumable is what must be equal for two processes to fetch the same file; empty: nothing tells.
func resumable(f source.File) string {
	switch {
	case f.SHA256 != "":
		return "sha256:" + f.SHA256
	case f.GitOID != "":
		return "git:" + f.GitOID
	}
	return f.Version
}

func expected(f source.File) string {
	if f.SHA256 != "" {
		return "sha256:" + f.SHA256
	}
	return "git object " + f.GitOID
}

// commit keeps a file in the cache, and what it turned out to be.
func (j *job) commit(f source.File, p *cache.Partial, sum string) error {
	if _, err := j.cache.Commit(p, sum); err != nil {
		return err
	}
	if key(f) == sum {
		return nil
	}
	return j.cache.Learn(key(f), cache.Fact{SHA256: sum, At: j.f.clock.Now()})
}
