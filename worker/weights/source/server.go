package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"path"
	"strings"
)

// server is any web server: one URL, one file.
type server struct {
	web
	uri  URI
	name string // of the file; empty: the last part of the URL
}

// List asks for the first byte: the answer has the size, whether parts can be had, and the version. HEAD would say the
// same, but signed URLs are often signed for GET alone.
func (s *server) List(ctx context.Context) (Listing, error) {
	name := s.name
	if name == "" {
		name = path.Base(s.uri.URL.Path)
	}
	name, ok := clean(path.Base(name))
	if !ok {
		return Listing{}, refuse(Unusable, "%s doesn't end in a file's name: name the file", s.uri)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.uri.URL.String(), nil)
	if err != nil {
		return Listing{}, refuse(Unusable, "%s is no URL", s.uri)
	}
	r.Header.Set("Range", "bytes=0-0")
	resp, err := s.do(r)
	if err != nil {
		return Listing{}, err
	}
	f := File{Name: name, Bytes: -1, Version: version(resp.Header), at: s.uri.URL.String()}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		got, err := contentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			resp.Body.Close()
			return Listing{}, refuse(Unusable, "%s: %s", s.uri, err)
		}
		f.Bytes = got.total
		drain(resp.Body)
	case http.StatusOK:
		f.Bytes, f.Whole = resp.ContentLength, true
		resp.Body.Close() // all of the file follows
	case http.StatusRequestedRangeNotSatisfiable:
		resp.Body.Close()
		return Listing{}, refuse(Unusable, "%s is empty", s.uri)
	default:
		return Listing{}, s.status(resp)
	}
	if f.Bytes < 0 {
		return Listing{}, refuse(Unusable, "%s: the server doesn't say how large the file is", s.uri)
	}
	f.Identity = s.identity(f.Version)
	return Listing{Files: []File{f}}, nil
}

// identity leaves the query out where the version tells files apart: signatures differ from one pod to the next.
func (s *server) identity(version string) string {
	id := "https:" + s.uri.URL.Host + s.uri.URL.EscapedPath()
	if version == "" && s.uri.URL.RawQuery != "" {
		sum := sha256.Sum256([]byte(s.uri.URL.RawQuery))
		id += "?" + hex.EncodeToString(sum[:])
	}
	return id
}

// Stat has nothing to add to List.
func (s *server) Stat(_ context.Context, f File) (File, error) { return f, nil }

// Open asks for a part of the version that List saw.
func (s *server) Open(ctx context.Context, f File, from, to int64) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.at, nil)
	if err != nil {
		return nil, refuse(Unusable, "%s is no URL", s.uri)
	}
	switch {
	case strings.HasPrefix(f.Version, `"`):
		r.Header.Set("If-Match", f.Version)
	case f.Version != "" && !strings.HasPrefix(f.Version, "W/"):
		r.Header.Set("If-Unmodified-Since", f.Version)
	}
	resp, err := s.part(r, f, from, to)
	if err != nil {
		return nil, err
	}
	if v := version(resp.Header); v != f.Version {
		resp.Body.Close()
		return nil, refuse(Changed, "%s changed while it was fetched: it was version %s and is %s", s.uri, short(f.Version), short(v))
	}
	return resp.Body, nil
}

// version is the ETag, or the time of the last change, or nothing.
func version(h http.Header) string {
	if e := h.Get("ETag"); e != "" {
		return e
	}
	return h.Get("Last-Modified")
}
