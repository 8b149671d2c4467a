package install

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fake installs with the shell in place of Python.
func fake(gguf string, out io.Writer) installer {
	return installer{out: out, gguf: gguf, python: func(_ context.Context, _ io.Writer, dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
			return err
		}
		return os.Symlink("/bin/sh", filepath.Join(dir, "bin", "python"))
	}}
}

func shell(script string) step {
	return step{say: "run it", cmd: []string{"{py}", "-c", script, "sh", "{gguf}", "{dir}"}, env: []string{"WORD=env"}}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnEngineIsInstalledOnce(t *testing.T) {
	root := t.TempDir()
	var out strings.Builder
	r := recipe{title: "an engine", key: "engine-1", steps: []step{shell(`echo "$1 $2 $WORD" >> "$2/log"`), shell(`echo two >> "$2/log"`)}}
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 3 {
		all.Go(func() {
			var own strings.Builder
			dir, err := fake("/model.gguf", &own).get(context.Background(), r, root)
			if err != nil || dir != filepath.Join(root, "engine-1") {
				t.Errorf("it is in %q (%v)", dir, err)
			}
			mu.Lock()
			defer mu.Unlock()
			out.WriteString(own.String())
		})
	}
	all.Wait()
	dir := filepath.Join(root, "engine-1")
	if got := read(t, filepath.Join(dir, "log")); got != "/model.gguf "+dir+" env\ntwo\n" {
		t.Errorf("the steps wrote %q", got)
	}
	if n := strings.Count(out.String(), "2 of 2: run it"); n != 1 {
		t.Errorf("it was installed %d times:\n%s", n, out.String())
	}
}

func TestHalfAnInstallationIsBegunAnew(t *testing.T) {
	root := t.TempDir()
	r := recipe{title: "an engine", key: "engine-1", steps: []step{shell(`echo half > "$2/half"; echo the last words; exit 3`)}}
	_, err := fake("", io.Discard).get(context.Background(), r, root)
	if err == nil || !strings.Contains(err.Error(), "install an engine: run it: exit status 3") || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("the error is %v", err)
	}
	r.steps = []step{shell(`test ! -e "$2/half"`)}
	if _, err := fake("", io.Discard).get(context.Background(), r, root); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownEngineIsNamedWithTheKnownOnes(t *testing.T) {
	if _, err := Get(context.Background(), "nothing", io.Discard); err == nil || !strings.Contains(err.Error(), VLLM) {
		t.Errorf("the error is %v", err)
	}
}

func TestVersionsArePinnedAndNameTheFolder(t *testing.T) {
	for name, r := range recipes {
		var pinned string
		for _, s := range r.steps {
			for _, a := range s.cmd {
				if _, version, ok := strings.Cut(a, "=="); ok && strings.HasSuffix(r.key, version) {
					pinned = version
				}
			}
		}
		if pinned == "" {
			t.Errorf("%s: no step installs the version of the folder %s", name, r.key)
		}
	}
}
