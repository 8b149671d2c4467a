package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

func TestWeightsInAVolumeAreCheckedWhereTheyLie(t *testing.T) {
	file, shard := sourcetest.GGUF(4096, 1), sourcetest.Safetensors(4096, 1)
	sum := "sha256:" + sourcetest.Sum(file)
	for name, c := range map[string]struct {
		files  map[string][]byte
		r      Request
		want   string // below the volume
		reason string
		says   string
	}{
		"the only file of a claim":          {map[string][]byte{"m.gguf": file, "x.txt": nil}, Request{URI: "pvc://claim/folder"}, "m.gguf", "", ""},
		"a named file in a folder":          {map[string][]byte{"a/m.gguf": file}, Request{URI: "pvc://claim", File: "a/m.gguf"}, "a/m.gguf", "", ""},
		"with its digest":                   {map[string][]byte{"m.gguf": file}, Request{URI: "pvc://claim", Digest: sum}, "m.gguf", "", ""},
		"a safetensors model":               {map[string][]byte{"model.safetensors": shard, "config.json": []byte("{}")}, Request{URI: "pvc://claim"}, "", "", ""},
		"a safetensors file's digest":       {map[string][]byte{"a.safetensors": shard}, Request{URI: "pvc://claim", File: "a.safetensors", Digest: sum}, "", DigestMismatch, "found sha256:"},
		"with another digest":               {map[string][]byte{"m.gguf": file}, Request{URI: "pvc://claim", Digest: "sha256:" + strings.Repeat("0", 64)}, "", DigestMismatch, "expected"},
		"a path":                            {map[string][]byte{"a/m.gguf": file}, Request{URI: "file://ROOT/a/m.gguf"}, "a/m.gguf", "", ""},
		"a folder":                          {map[string][]byte{"a/m.gguf": file}, Request{URI: "file://ROOT/a"}, "a/m.gguf", "", ""},
		"a path elsewhere":                  {nil, Request{URI: "file:///etc/passwd"}, "", SourceForbidden, "not below"},
		"nothing there":                     {nil, Request{URI: "pvc://claim"}, "", Unsupported, "it holds nothing"},
		"no folder there":                   {nil, Request{URI: "file://ROOT/gone"}, "", NotFound, "no such file"},
		"a file that is cut off":            {map[string][]byte{"m.gguf": file[:2000]}, Request{URI: "pvc://claim"}, "", Truncated, "m.gguf"},
		"an index of files not there":       {map[string][]byte{"model.safetensors": shard, "model.safetensors.index.json": []byte(`{"weight_map":{"t":"x.safetensors"}}`)}, Request{URI: "pvc://claim"}, "", NotFound, "x.safetensors"},
		"a model that names another's code": {map[string][]byte{"model.safetensors": shard, "config.json": []byte(`{"auto_map":{"A":"o/r--m.C"}}`)}, Request{URI: "pvc://claim"}, "", Unsupported, "o/r--m.C"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for n, b := range c.files {
				path := filepath.Join(root, n)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := New(Options{CacheDir: "/nonexistent/cache", Connections: 1, FileRoot: root, VolumeDir: root}, newSkipping())
			if err != nil {
				t.Fatal(err)
			}
			c.r.URI = strings.Replace(c.r.URI, "ROOT", root, 1)
			var last Progress
			path, err := f.Ensure(t.Context(), c.r, func(p Progress) { last = p })
			if c.reason != "" {
				refused(t, err, c.reason, c.says)
				return
			}
			if err != nil || path != filepath.Join(root, c.want) {
				t.Fatalf("got %q, %v", path, err)
			}
			if last.Stage != Ready || last.Done == 0 {
				t.Errorf("the last report was %+v", last)
			}
		})
	}
}
