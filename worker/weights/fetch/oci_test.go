package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	ocicontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// entry is one of an archive.
type entry struct {
	name string
	body []byte
	kind byte
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.body)), Mode: 0o644, Typeflag: tar.TypeReg}
		if e.kind != 0 {
			h.Typeflag, h.Size, h.Linkname = e.kind, 0, "/etc/passwd"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write(e.body)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const dockerLayer = "application/vnd.docker.image.rootfs.diff.tar.gzip"

// layer is one of an image.
type layer struct {
	media string
	body  []byte
	notes map[string]string
}

// push makes an image of layers in a registry of its own and returns a rig that may fetch it, its URI and its digest.
func push(t *testing.T, layers ...layer) (r *rig, uri, digest string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return pushTo(t, s.URL, layers...)
}

func pushTo(t *testing.T, url string, layers ...layer) (r *rig, uri, digest string) {
	t.Helper()
	host := strings.TrimPrefix(url, "http://")
	repo, err := remote.NewRepository(host + "/models/m")
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	store := func(media string, b []byte) ocispec.Descriptor {
		d := ocicontent.NewDescriptorFromBytes(media, b)
		if err := repo.Push(t.Context(), d, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: store(ocispec.MediaTypeImageConfig, []byte(`{"os":"linux","architecture":"amd64"}`)), Layers: []ocispec.Descriptor{}}
	for _, l := range layers {
		d := store(l.media, l.body)
		d.Annotations = l.notes
		m.Layers = append(m.Layers, d)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d := store(ocispec.MediaTypeImageManifest, b)
	if err := repo.Tag(t.Context(), d, "v1"); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, &sourcetest.Hub{}, func(o *Options) { o.PlainRegistries = host })
	return r, "oci://" + host + "/models/m:v1", d.Digest.String()
}

func TestImagesAndArtifactsAreFetched(t *testing.T) {
	model, other := sourcetest.GGUF(mib, 1), sourcetest.GGUF(4096, 2)
	shard := sourcetest.Safetensors(200_000, 3)
	z, _ := zstd.NewWriter(nil)
	for title, c := range map[string]struct {
		layers []layer
		r      Request
		want   map[string][]byte // by name below the result; "" is the result itself
	}{
		"an image": {[]layer{{ocispec.MediaTypeImageLayer, archive(t, entry{"etc/x", []byte("x"), 0}, entry{"m.gguf", model, 0}), nil}}, Request{},
			map[string][]byte{"": model}},
		"a compressed image": {[]layer{{dockerLayer, zipped(t, archive(t, entry{"./m.gguf", model, 0})), nil}}, Request{}, map[string][]byte{"": model}},
		"an image by zstd":   {[]layer{{ocispec.MediaTypeImageLayerZstd, z.EncodeAll(archive(t, entry{"/m.gguf", model, 0}), nil), nil}}, Request{}, map[string][]byte{"": model}},
		"a file in a folder of an image": {[]layer{{ocispec.MediaTypeImageLayer, archive(t, entry{"models/m.gguf", model, 0}, entry{"o.gguf", other, 0}), nil}},
			Request{File: "models/m.gguf"}, map[string][]byte{"": model}},
		"layers over each other": {[]layer{
			{ocispec.MediaTypeImageLayer, archive(t, entry{"m.gguf", other, 0}, entry{"n.gguf", other, 0}), nil},
			{ocispec.MediaTypeImageLayer, archive(t, entry{"m.gguf", model, 0}, entry{".wh.n.gguf", nil, 0}), nil}}, Request{}, map[string][]byte{"": model}},
		"a safetensors model in an image": {[]layer{{ocispec.MediaTypeImageLayer, archive(t, entry{"model.safetensors", shard, 0},
			entry{"config.json", []byte("{}"), 0}, entry{"x.py", []byte("import os"), 0}), nil}}, Request{},
			map[string][]byte{"model.safetensors": shard, "config.json": []byte("{}")}},
		"an artifact": {[]layer{{ocispec.MediaTypeImageLayer, model, map[string]string{"org.opencontainers.image.title": "m.gguf"}}}, Request{},
			map[string][]byte{"": model}},
		"a model package": {[]layer{
			{"application/vnd.cncf.model.weight.v1.raw", shard, map[string]string{"org.cncf.model.filepath": "model.safetensors"}},
			{"application/vnd.cncf.model.weight.config.v1.raw", []byte("{}"), map[string]string{"org.cncf.model.filepath": "config.json"}}}, Request{},
			map[string][]byte{"model.safetensors": shard, "config.json": []byte("{}")}},
		"a model runner's artifact": {[]layer{{"application/vnd.docker.ai.gguf.v3", model, nil}, {"application/vnd.docker.ai.license", []byte("MIT"), nil}},
			Request{}, map[string][]byte{"": model}},
	} {
		t.Run(title, func(t *testing.T) {
			r, uri, digest := push(t, c.layers...)
			for _, wanted := range []string{"", digest} {
				c.r.URI, c.r.Digest = uri, wanted
				path := r.ensure(c.r)
				for n, b := range c.want {
					if !bytes.Equal(content(t, filepath.Join(path, n)), b) {
						t.Errorf("%s is another file", n)
					}
				}
			}
			if left := r.left("partial"); len(left) != 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

func TestImagesThatCantBeUsed(t *testing.T) {
	model := sourcetest.GGUF(4096, 1)
	plain := func(es ...entry) []layer { return []layer{{ocispec.MediaTypeImageLayer, archive(t, es...), nil}} }
	for title, c := range map[string]struct {
		layers []layer
		r      Request
		reason string
		says   string
	}{
		"no weights":                     {plain(entry{"bin/sh", []byte("x"), 0}), Request{}, Unsupported, "bin/sh"},
		"weights in a folder, not named": {plain(entry{"models/m.gguf", model, 0}), Request{}, Unsupported, "models/m.gguf"},
		"a link instead of weights":      {plain(entry{"m.gguf", nil, tar.TypeSymlink}), Request{}, Unsupported, "neither"},
		"a hard link":                    {plain(entry{"m.gguf", nil, tar.TypeLink}), Request{}, Unsupported, "neither"},
		"a name that climbs":             {plain(entry{"../../m.gguf", []byte("PK"), 0}), Request{}, "WeightsNotGGUF", "m.gguf"},
		"a layer that is no archive":     {[]layer{{dockerLayer, []byte("not gzip"), nil}}, Request{}, Unsupported, "can't be unpacked"},
		"a layer that is cut off":        {[]layer{{ocispec.MediaTypeImageLayer, archive(t, entry{"m.gguf", model, 0})[:2000], nil}}, Request{}, Unsupported, "unexpected EOF"},
		"a bomb":                         {[]layer{{dockerLayer, zipped(t, archive(t, entry{"zeros", make([]byte, 8*mib), 0})), nil}}, Request{}, Unsupported, "can't be unpacked"},
		"another manifest":               {plain(entry{"m.gguf", model, 0}), Request{Digest: "sha256:" + strings.Repeat("4", 64)}, DigestMismatch, "another manifest"},
	} {
		t.Run(title, func(t *testing.T) {
			r, uri, _ := push(t, c.layers...)
			c.r.URI = uri
			_, err := r.Ensure(r.ctx(), c.r, nil)
			refused(t, err, c.reason, c.says)
		})
	}
}

func TestAPrivateRegistryGetsItsCredentialsAndItsStoreNone(t *testing.T) {
	model := sourcetest.GGUF(mib, 1)
	var leaked atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(model))
	}))
	defer store.Close()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var closed atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case closed.Load() && (user != "u" || password != "passw0rd"):
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		case closed.Load() && strings.HasSuffix(r.URL.Path, sourcetest.Sum(model)):
			http.Redirect(w, r, store.URL+"/blob?sig=s1gn4ture", http.StatusTemporaryRedirect)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	defer front.Close()
	r, uri, _ := pushTo(t, front.URL, layer{ocispec.MediaTypeImageLayer, model, map[string]string{"org.opencontainers.image.title": "m.gguf"}})
	closed.Store(true)
	_, err := r.Ensure(r.ctx(), Request{URI: uri}, nil)
	refused(t, err, Unauthorized, uri)
	config := filepath.Join(t.TempDir(), "config.json")
	auth := base64.StdEncoding.EncodeToString([]byte("u:passw0rd"))
	if err := os.WriteFile(config, []byte(`{"auths":{"`+strings.TrimPrefix(front.URL, "http://")+`":{"auth":"`+auth+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.o.RegistryConfig = config
	if path := r.again().ensure(Request{URI: uri}); !bytes.Equal(content(t, path), model) {
		t.Error("another file")
	}
	if leaked.Load() != 0 {
		t.Errorf("the store got credentials %d times", leaked.Load())
	}
}

func TestAnImageThatIsNotThereIsNotFound(t *testing.T) {
	r, uri, _ := push(t)
	_, err := r.Ensure(r.ctx(), Request{URI: strings.Replace(uri, ":v1", ":v2", 1)}, nil)
	refused(t, err, NotFound, "v2")
}
