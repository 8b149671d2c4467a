package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
)

// packed writes libraries as Write does.
func packed(t *testing.T) (dir string, content []byte) {
	t.Helper()
	dir, content = t.TempDir(), bytes.Repeat([]byte("kernel"), 1000)
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(dir, "whole")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libllama.v0.5.0.so", "libggml.v0.5.0.so", fetch.LibraryCUDA} {
		if err := squeeze(from, filepath.Join(dir, "lib", name), nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir, content
}

func TestWhatIsPackedIsUnpackedUnderEveryName(t *testing.T) {
	dir, content := packed(t)
	to, remove, err := Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libllama.so", "libllama.v0.5.0.so", "libggml.so", fetch.LibraryCUDA} {
		if b, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(b, content) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	remove()
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", to, err)
	}
}

func TestAFolderThatIsNoneOrDamagedIsNamed(t *testing.T) {
	if _, _, err := Unpack(t.TempDir()); err == nil || !strings.Contains(err.Error(), "gpu-check pack") {
		t.Errorf("an empty folder: %v", err)
	}
	dir, _ := packed(t)
	path := filepath.Join(dir, "lib", fetch.LibraryCUDA+".gz")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Unpack(dir); err == nil || !strings.Contains(err.Error(), fetch.LibraryCUDA) {
		t.Errorf("a file that is cut off: %v", err)
	}
}

func TestAFolderForAnotherGPUIsRefused(t *testing.T) {
	if err := fits("9.0\n", "9.0\n9.0\n"); err != nil {
		t.Error(err)
	}
	if err := fits("9.0\n", "8.0\n"); err == nil || !strings.Contains(err.Error(), "pack -gpu 80") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderThatIsTooHeavyIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "heavy")
	var out bytes.Buffer
	for size, fine := range map[int64]bool{Most: true, Most + 1: false} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := weigh(&out, dir); (err == nil) != fine {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestTheFolderOfTheUserIsSearchedFirst(t *testing.T) {
	got := candidates("/mine", "libcudart.so.13")
	if len(got) != 2 || got[0] != "/mine/libcudart.so.13" || got[1] != "libcudart.so.13" {
		t.Errorf("got %v", got)
	}
	if got := candidates("", "libcudart.so.13"); got[0] != "libcudart.so.13" {
		t.Errorf("got %v", got)
	}
}
