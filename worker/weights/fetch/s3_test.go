package fetch

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// keys changes a rig's environment to that of an object store.
func keys(endpoint, key, secret string) func(*Options) {
	env := map[string]string{"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
	return func(o *Options) { o.Getenv = func(k string) string { return env[k] } }
}

func TestWeightsOfARealObjectStore(t *testing.T) {
	s3 := sourcetest.StartS3(t)
	model, large := sourcetest.GGUF(mib, 1), sourcetest.GGUF(12*mib, 2)
	shard := sourcetest.Safetensors(200_000, 3)
	s3.Put("m.gguf", model, false, false)
	s3.Put("sum/m.gguf", model, true, false)
	s3.Put("parts/m.gguf", large, false, true)
	s3.Put("st/model.safetensors", shard, false, false)
	s3.Put("st/config.json", []byte("{}"), false, false)
	s3.Put("st/pytorch_model.bin", []byte("pickle"), false, false)
	for name, c := range map[string]struct {
		r      Request
		want   map[string][]byte
		reason string
		says   string
	}{
		"an object":                   {Request{URI: "s3://weights/m.gguf"}, map[string][]byte{"": model}, "", ""},
		"with a digest":               {Request{URI: "s3://weights/m.gguf", Digest: "sha256:" + sourcetest.Sum(model)}, map[string][]byte{"": model}, "", ""},
		"with another digest":         {Request{URI: "s3://weights/m.gguf", Digest: "sha256:" + strings.Repeat("1", 64)}, nil, DigestMismatch, "found sha256:" + sourcetest.Sum(model)},
		"stored with its digest":      {Request{URI: "s3://weights/sum/m.gguf"}, map[string][]byte{"": model}, "", ""},
		"stored with another":         {Request{URI: "s3://weights/sum/m.gguf", Digest: "sha256:" + strings.Repeat("1", 64)}, nil, DigestMismatch, "the source says sha256:" + sourcetest.Sum(model)},
		"stored in parts":             {Request{URI: "s3://weights/parts"}, map[string][]byte{"": large}, "", ""},
		"a folder":                    {Request{URI: "s3://weights/st/"}, map[string][]byte{"model.safetensors": shard, "config.json": []byte("{}")}, "", ""},
		"an object that is not there": {Request{URI: "s3://weights/n.gguf"}, nil, NotFound, "404"},
		"a folder that is not there":  {Request{URI: "s3://weights/none"}, nil, NotFound, "holds no objects"},
		"a bucket that is not there":  {Request{URI: "s3://nowhere/m.gguf"}, nil, NotFound, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &sourcetest.Hub{}, keys(s3.URL, sourcetest.Key, sourcetest.Secret))
			path, err := r.Ensure(r.ctx(), c.r, nil)
			if c.reason != "" {
				refused(t, err, c.reason, c.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for n, b := range c.want {
				if !bytes.Equal(content(t, filepath.Join(path, n)), b) {
					t.Errorf("%s is another file", n)
				}
			}
			if pickles, _ := filepath.Glob(filepath.Join(path, "*.bin")); len(pickles) != 0 {
				t.Errorf("%q was fetched", pickles)
			}
		})
	}
	for name, change := range map[string]func(*Options){
		"a wrong secret": keys(s3.URL, sourcetest.Key, "another"), "no keys": keys(s3.URL, "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &sourcetest.Hub{}, change)
			_, err := r.Ensure(r.ctx(), Request{URI: "s3://weights/m.gguf"}, nil)
			refused(t, err, Unauthorized, "403")
		})
	}
}

func TestAnObjectStoreThatFailsIsGoneOnWith(t *testing.T) {
	s3 := sourcetest.StartS3(t)
	model := sourcetest.GGUF(2*mib, 1)
	s3.Put("m.gguf", model, false, false)
	target, err := url.Parse(s3.URL)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	var got sync.Map
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the signature is over the host that the client named
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = xml.NewEncoder(w).Encode(struct {
				XMLName xml.Name `xml:"Error"`
				Code    string
			}{Code: "SlowDown"})
			return
		}
		if r.Method == http.MethodGet {
			got.Store(r.Header.Get("If-Match"), true)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	r := newRig(t, &sourcetest.Hub{}, keys(front.URL, sourcetest.Key, sourcetest.Secret))
	if path := r.ensure(Request{URI: "s3://weights/m.gguf"}); !bytes.Equal(content(t, path), model) {
		t.Error("another file")
	}
	got.Range(func(v, _ any) bool {
		if v == "" {
			t.Error("a part was asked for without its version")
		}
		return true
	})
}
