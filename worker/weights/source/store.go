package source

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// store is a bucket of an S3 server. Keys below the prefix are the files; a key that is a file of weights is the only one.
type store struct {
	core  *minio.Core
	creds *credentials.Credentials
	uri   URI
}

// List returns the one object, or the objects below the prefix.
func (s *store) List(ctx context.Context) (Listing, error) {
	if _, err := s.creds.GetWithContext(s.core.CredContext()); err != nil && ctx.Err() == nil {
		return Listing{}, refuse(Unauthorized, "%s: the pod's identity gives no credentials for it: %s", s.uri, innermost(err))
	}
	if ext := strings.ToLower(path.Ext(s.uri.Path)); ext == ".gguf" || ext == ".safetensors" {
		return Listing{Files: []File{s.file(path.Base(s.uri.Path), s.uri.Path, -1)}}, nil
	}
	prefix := s.uri.Path
	if prefix != "" {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	listing, stop := context.WithCancel(ctx) // ends the listing's goroutine when we stop reading
	defer stop()
	var l Listing
	objects := s.core.Client.ListObjects(listing, s.uri.Name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true})
	var failed error
	for o := range objects {
		switch {
		case failed != nil: // its last word, after stop
		case o.Err != nil:
			failed = s.explain(ctx, o.Err, s.uri.String())
			stop()
		case len(l.Files) == maxFiles:
			failed = refuse(Unusable, "%s holds more than %d objects", s.uri, maxFiles)
			stop()
		default:
			if name, ok := clean(strings.TrimPrefix(o.Key, prefix)); ok {
				l.Files = append(l.Files, s.file(name, o.Key, o.Size))
			}
		}
	}
	if ctx.Err() != nil {
		return Listing{}, ctx.Err()
	}
	if failed == nil && len(l.Files) == 0 {
		failed = refuse(NotFound, "%s holds no objects", s.uri)
	}
	return l, failed
}

func (s *store) file(name, key string, size int64) File {
	endpoint := s.core.EndpointURL()
	return File{Name: name, Bytes: size, at: key, Identity: "s3:" + endpoint.Host + "/" + s.uri.Name + "/" + key}
}

// Stat asks for size, ETag and, where the object was stored with one, its SHA-256. The ETag of an object stored in parts
// is no digest of it, and that of others is MD5 at best: it names the version, and nothing is compared with it.
func (s *store) Stat(ctx context.Context, f File) (File, error) {
	info, err := s.core.StatObject(ctx, s.uri.Name, f.at, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return File{}, s.explain(ctx, err, f.Name)
	}
	f.Bytes, f.Version = info.Size, info.ETag
	if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil && len(sum) == 32 {
		f.SHA256 = hex.EncodeToString(sum)
	}
	return f, nil
}

// Open asks for a part of the version that Stat saw.
func (s *store) Open(ctx context.Context, f File, from, to int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	err := o.SetRange(from, to-1)
	if f.Version != "" {
		err = errors.Join(err, o.SetMatchETag(f.Version))
	}
	if err != nil {
		return nil, refuse(Unusable, "%s: %s", f.Name, err)
	}
	body, info, _, err := s.core.GetObject(ctx, s.uri.Name, f.at, o)
	if err != nil {
		return nil, s.explain(ctx, err, f.Name)
	}
	if info.ETag != f.Version || info.Size != to-from {
		body.Close()
		return nil, refuse(Changed, "%s/%s changed while it was fetched: asked for %d bytes of version %s, got %d of %s",
			s.uri, f.Name, to-from, short(f.Version), info.Size, short(info.ETag))
	}
	return &part{body: body, n: to - from}, nil
}

// explain makes an *Error of what the client returns. The server's own message is left out: some repeat the request.
func (s *store) explain(ctx context.Context, err error, what string) error {
	resp := minio.ToErrorResponse(err)
	if ctx.Err() != nil || resp.StatusCode == 0 {
		return failure(ctx, s.core.EndpointURL(), err)
	}
	k := Unusable
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		k = Unauthorized
	case resp.StatusCode == http.StatusNotFound:
		k = NotFound
	case resp.StatusCode == http.StatusPreconditionFailed, resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		k = Changed
	case resp.StatusCode == http.StatusTooManyRequests, resp.Code == "SlowDown":
		k = Limited
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusRequestTimeout:
		k = Unreachable
	}
	return refuse(k, "%s: the object store %s answers %d %s for %s", s.uri, s.core.EndpointURL().Host, resp.StatusCode, short(resp.Code), what)
}
