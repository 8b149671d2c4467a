package archive

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tarOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := put(w, name, 0o644, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func index(name string) string {
	return `{"manifests":[{"annotations":{"io.containerd.image.name":"` + name + `"}}]}`
}

func TestTheNamesInAnArchive(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
		fails string
	}{
		"an OCI archive names its image":           {map[string]string{"index.json": index("docker.io/a/b:1")}, []string{"docker.io/a/b:1"}, ""},
		"docker save's short names mean docker.io": {map[string]string{"manifest.json": `[{"RepoTags":["a/b:1","c:2","localhost:5000/d:3"]}]`}, []string{"docker.io/a/b:1", "docker.io/library/c:2", "localhost:5000/d:3"}, ""},
		"both files of one archive count once":     {map[string]string{"index.json": index("docker.io/a/b:1"), "manifest.json": `[{"RepoTags":["a/b:1"]}]`}, []string{"docker.io/a/b:1"}, ""},
		"an archive without a name is refused":     {map[string]string{"index.json": `{"manifests":[{}]}`}, nil, "io.containerd.image.name"},
		"a short OCI name is refused":              {map[string]string{"index.json": index("a/b:1")}, nil, "full name"},
		"a broken index is refused":                {map[string]string{"index.json": `{`}, nil, "index.json"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := names(bytes.NewReader(tarOf(t, tc.files)))
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %v, want an error with %q", err, tc.fails)
				}
				return
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestWhatIsWrittenIsReadBackAndIsTheSameEveryTime(t *testing.T) {
	img := Image{Name: "docker.io/ringfleet/pause:1", Architecture: "amd64", File: "/pause", Content: []byte("program")}
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := Write(w, img); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same image gives other bytes")
	}
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, a.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Names(file)
	if err != nil || !slices.Equal(got, []string{img.Name}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzNames(f *testing.F) {
	f.Add(tarOf(f, map[string]string{"index.json": index("docker.io/a/b:1")}))
	f.Add(tarOf(f, map[string]string{"manifest.json": `[{"RepoTags":["x"]}]`}))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := names(bytes.NewReader(text))
		if err == nil && (len(got) == 0 || !slices.IsSorted(got)) {
			t.Errorf("got %q without an error", got)
		}
	})
}
