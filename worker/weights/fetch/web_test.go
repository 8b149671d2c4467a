package fetch

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// web serves b at every path, as change makes of it.
func web(t *testing.T, b []byte, change func(w http.ResponseWriter, r *http.Request) (done bool)) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var sent atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if change != nil && change(w, r) {
			return
		}
		http.ServeContent(&counting{w, &sent}, r, "m.gguf", time.Time{}, bytes.NewReader(b))
	}))
	t.Cleanup(s.Close)
	return s, &sent
}

type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

func TestAFileOfAWebServerIsFetchedByRangesOfOneVersion(t *testing.T) {
	b := sourcetest.GGUF(mib, 1)
	var without atomic.Int32
	s, sent := web(t, b, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("If-Match") != `"v1"` {
			without.Add(1)
		}
		return false
	})
	r := newRig(t, &sourcetest.Hub{})
	req := Request{URI: s.URL + "/dir/m.gguf?sig=s1gn4ture"}
	if path := r.ensure(req); !bytes.Equal(content(t, path), b) || !strings.HasSuffix(path, "/m.gguf") {
		t.Errorf("%s is another file", path)
	}
	if without.Load() != 1 || sent.Load() != int64(len(b))+1 {
		t.Errorf("%d requests named no version, and %d bytes were sent; expected one of one byte, that asks for the size", without.Load(), sent.Load())
	}
	req.URI = s.URL + "/dir/m.gguf?sig=another"
	r.again().ensure(req)
	if sent.Load() != int64(len(b))+2 {
		t.Errorf("another signature fetches it again: %d bytes", sent.Load())
	}
}

func TestFilesOfWebServersThatDoLess(t *testing.T) {
	b := sourcetest.GGUF(mib, 1)
	for name, c := range map[string]struct {
		change func(w http.ResponseWriter, r *http.Request) bool
		r      Request
		reason string
		says   []string
	}{
		"no ETag": {change: func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Del("ETag"); return false }},
		"a time instead of an ETag": {change: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Del("ETag")
			w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
			return false
		}},
		"a weak ETag": {change: func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set("ETag", `W/"1"`); return false }},
		"no ranges":   {change: func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Range"); return false }},
		"no size": {change: func(w http.ResponseWriter, _ *http.Request) bool {
			_ = http.NewResponseController(w).Flush()
			return true
		}, reason: Unsupported, says: []string{"how large"}},
		"ranges that are others": {change: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Range") == "bytes=0-0" {
				return false
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-9/%d", len(b)))
			w.WriteHeader(http.StatusPartialContent)
			return true
		}, reason: Unsupported, says: []string{"got 5 to 10"}},
		"a Content-Range of nonsense": {change: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Range", "bytes 9-5/x")
			w.WriteHeader(http.StatusPartialContent)
			return true
		}, reason: Unsupported, says: []string{"Content-Range"}},
		"no such file": {change: func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(404); return true }, reason: NotFound, says: []string{"404"}},
		"no rights":    {change: func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(403); return true }, reason: Unauthorized, says: []string{"403"}},
		"metadata by a redirect": {change: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://169.254.169.254/latest?sig=s1gn4ture", http.StatusFound)
			return true
		}, reason: SourceForbidden, says: []string{"169.254.169.254", "never"}},
		"plain HTTP by a redirect": {change: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://127.0.0.1:1/m.gguf", http.StatusFound)
			return true
		}, reason: SourceForbidden, says: []string{"expected https"}},
		"the digest of another file": {r: Request{Digest: "sha256:" + strings.Repeat("3", 64)}, reason: DigestMismatch, says: []string{"found sha256:" + sourcetest.Sum(b)}},
		"the digest of the file":     {r: Request{Digest: "sha256:" + sourcetest.Sum(b)}},
	} {
		t.Run(name, func(t *testing.T) {
			s, sent := web(t, b, c.change)
			r := newRig(t, &sourcetest.Hub{})
			c.r.URI = s.URL + "/m.gguf?sig=s1gn4ture"
			path, err := r.Ensure(r.ctx(), c.r, nil)
			if c.reason != "" {
				refused(t, err, c.reason, c.says...)
			} else if err != nil || !bytes.Equal(content(t, path), b) {
				t.Fatal(err)
			}
			if sent.Load() > 2*int64(len(b)) {
				t.Errorf("%d bytes were sent for a file of %d", sent.Load(), len(b))
			}
		})
	}
}

func TestAVersionThatChangesWhileItIsFetchedIsBegunAnew(t *testing.T) {
	old, fresh := sourcetest.GGUF(mib, 1), sourcetest.GGUF(mib, 2)
	var n atomic.Int32
	var sent atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, etag := old, `"old"`
		if n.Add(1) > 3 {
			b, etag = fresh, `"new"`
		}
		w.Header().Set("ETag", etag)
		http.ServeContent(&counting{w, &sent}, r, "", time.Time{}, bytes.NewReader(b))
	}))
	defer s.Close()
	r := newRig(t, &sourcetest.Hub{}, func(o *Options) { o.Connections = 1 })
	if path := r.ensure(Request{URI: s.URL + "/m.gguf"}); !bytes.Equal(content(t, path), fresh) {
		t.Error("not the new version")
	}
	if sent.Load() > 2*mib {
		t.Errorf("%d bytes were sent", sent.Load())
	}
}

func TestAPrivateAddressNeedsTheOption(t *testing.T) {
	s, _ := web(t, sourcetest.GGUF(4096, 1), func(http.ResponseWriter, *http.Request) bool { t.Error("it was asked"); return false })
	r := newRig(t, &sourcetest.Hub{}, func(o *Options) { o.AllowNetworks = "10.0.0.0/8" })
	for _, uri := range []string{s.URL + "/m.gguf", strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/m.gguf", "hf://org/m"} {
		_, err := r.Ensure(r.ctx(), Request{URI: uri}, nil)
		refused(t, err, SourceForbidden, "private", "--weights-allow-networks")
	}
}
