package weights

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), sound(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindChoosesTheOnlyFileOrTheNamedOne(t *testing.T) {
	many := []string{"a.gguf", "b.gguf", "c.gguf", "d.gguf", "e.gguf", "f.gguf", "g.gguf"}
	cases := map[string]struct {
		files []string
		file  string
		want  string // base name; or
		says  []string
	}{
		"the only one":              {files: []string{"m.gguf", "README.md"}, want: "m.gguf"},
		"the named one of several":  {files: many, file: "c.gguf", want: "c.gguf"},
		"a named one of any ending": {files: []string{"model.bin"}, file: "model.bin", want: "model.bin"},
		"upper case":                {files: []string{"M.GGUF"}, want: "M.GGUF"},
		"several":                   {files: many, says: []string{"7 *.gguf files", "a.gguf, b.gguf, c.gguf, d.gguf, e.gguf and 2 more"}},
		"none among others":         {files: []string{"README.md"}, says: []string{"no *.gguf file", "README.md"}},
		"an empty folder":           {says: []string{"is empty", "an OCI artifact that is no image mounts as an empty folder"}},
		"an empty folder and a name": {file: "m.gguf", says: []string{"m.gguf", "the folder is empty",
			"an OCI artifact that is no image"}},
		"a name that is not there": {files: []string{"other.gguf"}, file: "m.gguf", says: []string{"m.gguf", "other.gguf"}},
		"a name outside":           {file: "../m.gguf", says: []string{"within the weights folder"}},
		"an absolute name":         {file: "/etc/passwd", says: []string{"within the weights folder"}},
		"a folder by name":         {file: ".", says: []string{"no regular file"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c.files...)
			path, err := Find(dir, c.file)
			if c.want != "" {
				if err != nil || path != filepath.Join(dir, c.want) {
					t.Fatalf("got %q, %v", path, err)
				}
				return
			}
			refusedBy(t, err, NotFound, c.says...)
		})
	}
}

func TestAFolderThatIsNotThereIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	for _, file := range []string{"", "m.gguf"} {
		_, err := Find(dir, file)
		refusedBy(t, err, NotFound, dir)
	}
}

func TestALinkedFileIsFound(t *testing.T) {
	dir, target := t.TempDir(), folder(t, "m.gguf")
	if err := os.Symlink(filepath.Join(target, "m.gguf"), filepath.Join(dir, "m.gguf")); err != nil {
		t.Fatal(err)
	}
	if path, err := Find(dir, ""); err != nil || path != filepath.Join(dir, "m.gguf") {
		t.Errorf("got %q, %v", path, err)
	}
}

func TestCheckComparesTheWholeFile(t *testing.T) {
	path := filepath.Join(folder(t, "m.gguf"), "m.gguf")
	right := fmt.Sprintf("sha256:%x", sha256.Sum256(sound()))
	var seen []int
	h, err := Check(t.Context(), path, right, func(p int) { seen = append(seen, p) })
	if err != nil || h.Architecture != "llama" {
		t.Fatalf("got %+v, %v", h, err)
	}
	if !slices.IsSorted(seen) || len(seen) == 0 || seen[len(seen)-1] != 100 || len(slices.Compact(slices.Clone(seen))) != len(seen) {
		t.Errorf("the percentages were %v", seen)
	}
	if _, err := Check(t.Context(), path, strings.ToUpper(right), nil); err != nil {
		t.Errorf("an upper-case digest: %v", err)
	}
	wrong := "sha256:" + strings.Repeat("0", 64)
	_, err = Check(t.Context(), path, wrong, nil)
	refusedBy(t, err, DigestMismatch, path, "expected "+wrong, "found "+right)
	_, err = Check(t.Context(), path, "md5:00", nil)
	refusedBy(t, err, DigestMismatch, "64 hexadecimal digits")
	if _, err := Check(t.Context(), path, "", nil); err != nil {
		t.Errorf("without a digest: %v", err)
	}
}

func TestCheckStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(folder(t, "m.gguf"), "m.gguf")
	_, err := Check(ctx, path, "sha256:"+strings.Repeat("0", 64), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCheckRefusesWhatIsNoFile(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "gone.gguf")} {
		_, err := Check(t.Context(), path, "", nil)
		refusedBy(t, err, NotFound, path)
	}
}

func refusedBy(t *testing.T, err error, reason string, says ...string) {
	t.Helper()
	var refused *engine.LoadError
	if !errors.As(err, &refused) || refused.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	for _, s := range says {
		if !strings.Contains(refused.Message, s) {
			t.Errorf("%q doesn't say %q", refused.Message, s)
		}
	}
}
