package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mod = `module x

go 1.26.8

require (
	k8s.io/kubernetes v1.37.2
	k8s.io/other v0.1.0 // indirect
)

require k8s.io/single v2.0.0

replace k8s.io/kubernetes => k8s.io/fork v9.9.9
`

func TestTheVersionOfAModule(t *testing.T) {
	for module, want := range map[string]string{"k8s.io/kubernetes": "v1.37.2", "k8s.io/other": "v0.1.0", "k8s.io/single": "v2.0.0", "k8s.io/none": ""} {
		if got := requiredVersion(mod, module); got != want {
			t.Errorf("%s: got %q, want %q", module, got, want)
		}
	}
}

func TestLinkerFlagsNameTheVersion(t *testing.T) {
	got := linkerFlags("-X a=VERSION -X b=MAJOR -X c=MINOR", "v1.37.2")
	if want := "-X a=v1.37.2 -X b=1 -X c=37"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheFolderChangesWithAllThatTheBinariesDependOn(t *testing.T) {
	base := func() (Component, source) {
		return Kube(), source{files: map[string][]byte{"go.mod": []byte(mod), "main.go": []byte("package main")}, version: "v1.37.2", goVersion: "go1.26.8", platform: "linux/amd64"}
	}
	c, s := base()
	first := folder(c, s)
	if !strings.HasPrefix(first, "kube-v1.37.2-") {
		t.Errorf("got %s", first)
	}
	for name, change := range map[string]func(*Component, *source){
		"a dependency":     func(_ *Component, s *source) { s.files["go.mod"] = []byte("other") },
		"a new file":       func(_ *Component, s *source) { s.files["new.go"] = nil },
		"a renamed file":   func(_ *Component, s *source) { s.files["x.go"] = s.files["main.go"]; delete(s.files, "main.go") },
		"the Go version":   func(_ *Component, s *source) { s.goVersion = "go1.27" },
		"the platform":     func(_ *Component, s *source) { s.platform = "linux/arm64" },
		"the linker flags": func(c *Component, _ *source) { c.LinkerFlags = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := base()
			change(&c, &s)
			if folder(c, s) == first {
				t.Error("the folder stays the same")
			}
		})
	}
	if c, s := base(); folder(c, s) != first {
		t.Error("the folder of the same source differs")
	}
}

func TestOnlyWhatIsMissingIsInstalled(t *testing.T) {
	for name, tc := range map[string]struct {
		lacks []string
		want  []string
	}{
		"nothing is missing":     {nil, nil},
		"runc and the plugins":   {[]string{"runc", "/usr/lib/cni/ptp"}, []string{"runc", "containernetworking-plugins"}},
		"the tools of a network": {[]string{"nft", "ip", "iptables"}, []string{"iproute2", "nftables", "iptables"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := missing(func(p string) bool { return !slices.Contains(tc.lacks, p) })
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheLastLinesOfAnOutputAreKeptAndAllAreCounted(t *testing.T) {
	var n atomic.Int64
	got := tail(strings.NewReader(strings.Repeat("x\n", 30)+"last"), &n)
	if n.Load() != 31 || len(got) != 20 || got[19] != "last" {
		t.Errorf("counted %d, kept %d, last %q", n.Load(), len(got), got[len(got)-1])
	}
}

// small is a component that builds in a moment.
func small(t *testing.T, program string) (Builder, Component, *bytes.Buffer) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	for name, text := range map[string]string{"go.mod": "module small\n\ngo 1.26\n", "main.go": program} {
		if err := os.MkdirAll(src+"/small", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, "small", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c := Component{Name: "small", Dir: "small", Packages: []string{"."}, Binaries: []string{"small"}, Links: []string{"alias"}}
	return Builder{Source: src, Cache: filepath.Join(t.TempDir(), "cache"), Out: &out, Clock: clock.RealClock{}}, c, &out
}

func TestAComponentIsBuiltOnceByWhoeverComesFirst(t *testing.T) {
	b, c, out := small(t, "package main\n\nfunc main() {}\n")
	writer := &locked{w: out}
	b.Out = writer
	var dirs [3]string
	var g sync.WaitGroup
	for i := range dirs {
		g.Go(func() {
			var err error
			if dirs[i], err = b.Ensure(context.Background(), c); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if dirs[0] != dirs[1] || dirs[1] != dirs[2] {
		t.Errorf("got %q", dirs)
	}
	if n := strings.Count(writer.String(), "done in"); n != 1 {
		t.Errorf("built %d times:\n%s", n, writer.String())
	}
	for _, f := range []string{"small", "alias"} {
		if _, err := os.Stat(filepath.Join(dirs[0], f)); err != nil {
			t.Error(err)
		}
	}
}

func TestABuildThatFailsLeavesNothingAndShowsTheCompiler(t *testing.T) {
	b, c, _ := small(t, "package main\n\nfunc main() { undefined() }\n")
	_, err := b.Ensure(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("got %v", err)
	}
	left, err := filepath.Glob(b.Cache + "/*")
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".small.lock" {
		t.Errorf("left %q, %v", left, err)
	}
}

func TestTheLeavingsOfAnInterruptedBuildAreRemoved(t *testing.T) {
	b, c, _ := small(t, "package main\n\nfunc main() {}\n")
	stray := filepath.Join(b.Cache, ".small-build-123")
	if err := os.MkdirAll(stray, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Ensure(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTheSourceIsFoundFromAnywhereInTheRepository(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"hack/cluster/kube", "router/ring"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "hack/cluster/kube/go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := FindSource(filepath.Join(root, "router/ring"))
	if err != nil || got != filepath.Join(root, "hack/cluster") {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := FindSource("/proc"); err == nil {
		t.Error("found outside of a repository")
	}
}

// locked is a buffer for several writers.
type locked struct {
	mu sync.Mutex // guards w
	w  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}
