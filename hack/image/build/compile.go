package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/apt"
	"github.com/ringfleet/ringfleet/hack/image/progress"
	"github.com/ringfleet/ringfleet/hack/image/recipe"
)

// compile builds the binary of p beside the archives and returns its path.
func (b *Builder) compile(ctx context.Context, p recipe.Program) (string, error) {
	if p.CGO {
		if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
			return "", fmt.Errorf("built on linux/amd64 only, this is %s/%s: use the Dockerfile", runtime.GOOS, runtime.GOARCH)
		}
		if err := b.compiler(ctx); err != nil {
			return "", err
		}
	}
	out := filepath.Join(b.Dir, "bin", p.Name)
	c := exec.CommandContext(ctx, "go", arguments(p, b.Version, out)...)
	c.Dir = b.Root
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+runtime.GOARCH, "CGO_ENABLED="+map[bool]string{true: "1", false: "0"}[p.CGO])
	what := p.Name + ": compiling " + p.Package
	fmt.Fprintln(b.Out, what)
	stop := progress.Tell(func(passed time.Duration) { fmt.Fprintf(b.Out, "%s, %.0f s so far\n", what, passed.Seconds()) })
	text, err := c.CombinedOutput()
	stop()
	if err != nil {
		return "", fmt.Errorf("%s: %w:\n%s", c, err, apt.Tail(text, 20))
	}
	return out, nil
}

// arguments are those of the go command. Paths of this machine, the state of the work tree and build ids stay
// out of the binary, so that equal sources make equal bytes.
func arguments(p recipe.Program, version, out string) []string {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version=" + version}
	if p.CGO {
		args = append(args, "-tags", "netgo,osusergo") // names are looked up by Go, so the image needs no plug-ins of the C library
	}
	return append(args, "-o", out, p.Package)
}

// compiler installs a C compiler where there is none.
func (b *Builder) compiler(ctx context.Context) error {
	for _, cc := range []string{os.Getenv("CC"), "gcc", "cc", "clang"} {
		if cc == "" {
			continue
		}
		if _, err := exec.LookPath(cc); err == nil {
			return nil
		}
	}
	return apt.Install(ctx, b.Out, "the worker is linked with the C library", "gcc", "libc6-dev")
}
