package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fixture(t *testing.T) Image {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("PROGRAM"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Image{Name: "docker.io/ringfleet/thing:1", Entrypoint: []string{"/thing"}, User: "65532:65532", Layers: []Layer{
		{Title: "base", Files: []File{{Path: "/etc/passwd", Content: []byte("p")}, {Path: "/tmp", Dir: true, Mode: 0o1777}}},
		{Title: "thing", Files: []File{{Path: "/thing", Source: source, Mode: 0o755}, {Path: "/lib/a/b.so", Link: "c.so"}}},
	}}
}

func write(t *testing.T, i Image) (string, v1.Hash) {
	t.Helper()
	img, err := Build(i, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "thing.tar")
	digest, err := Write(file, i.Name, img)
	if err != nil {
		t.Fatal(err)
	}
	return file, digest
}

// open unpacks an archive and reads it as another program would.
func open(t *testing.T, archive string) (v1.Image, v1.IndexManifest) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if hash, _, err := v1.SHA256(bytes.NewReader(b)); strings.HasPrefix(h.Name, "blobs/") && (err != nil || h.Name != "blobs/sha256/"+hash.Hex) {
			t.Errorf("%s has the digest %s (%v)", h.Name, hash, err)
		}
		to := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img, *m
}

func TestAnArchiveIsAValidImageUnderItsFullName(t *testing.T) {
	file, digest := write(t, fixture(t))
	img, index := open(t, file)
	m := index.Manifests[0]
	if m.Digest != digest || m.Annotations["io.containerd.image.name"] != "docker.io/ringfleet/thing:1" || m.Platform.Architecture != "amd64" {
		t.Errorf("index entry %+v", m)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/thing"}) || !c.Created.Equal(time.Unix(0, 0)) {
		t.Errorf("config %+v, created %s", c.Config, c.Created)
	}
	var got []string
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%c %o %s %s", h.Typeflag, h.Mode, h.Name, h.Linkname))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"5 755 etc/ ", "0 644 etc/passwd ", "5 1777 tmp/ ", "5 755 lib/ ", "5 755 lib/a/ ", "2 777 lib/a/b.so c.so", "0 755 thing "}
	if !slices.Equal(got, want) {
		t.Errorf("files\n%q, expected\n%q", got, want)
	}
}

func TestTheSameFilesMakeTheSameBytes(t *testing.T) {
	first, second := fixture(t), fixture(t) // sources in two places, of two times
	old := time.Unix(1, 0)
	if err := os.Chtimes(second.Layers[1].Files[0].Source, old, old); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(second.Layers[1].Files)
	a, digestA := write(t, first)
	b, digestB := write(t, second)
	bytesA, errA := os.ReadFile(a)
	bytesB, errB := os.ReadFile(b)
	if errA != nil || errB != nil || digestA != digestB || string(bytesA) != string(bytesB) {
		t.Errorf("digests %s and %s (%v, %v)", digestA, digestB, errA, errB)
	}
	second.Layers[1].Files[0].Link = "d.so"
	if _, digestC := write(t, second); digestC == digestA {
		t.Error("a changed link makes the same digest")
	}
}

func TestPathsThatCannotBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"a relative path":          {[]File{{Path: "etc/x"}}, "must be absolute"},
		"the root itself":          {[]File{{Path: "/", Dir: true}}, "must be absolute and below"},
		"one path twice":           {[]File{{Path: "/a"}, {Path: "/./a"}}, "/a stands twice"},
		"a file that has children": {[]File{{Path: "/a"}, {Path: "/a/b"}}, "/a is a file and a folder"},
		"a source that is gone":    {[]File{{Path: "/a", Source: "/nowhere/at/all"}}, "write /a: open /nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Build(Image{Name: "n", Layers: []Layer{{Title: "l", Files: c.files}}}, "amd64")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected one with %q", err, c.want)
			}
		})
	}
}
