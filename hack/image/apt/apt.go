// Package apt installs Debian packages that a step needs and the machine lacks, and says so. It decides
// nothing about which packages those are, and never removes or upgrades one that is there.
package apt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Install installs packages, for which why is the reason shown to the user. A machine without apt-get, or a
// user who may not use it, is an error that names the packages to install by hand.
func Install(ctx context.Context, out io.Writer, why string, packages ...string) error {
	list := strings.Join(packages, " ")
	fmt.Fprintf(out, "installing Debian packages: %s (%s)\n", list, why)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: this machine has no apt-get; install what holds %s by hand", list, why)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("install %s: not root; run: sudo apt-get install -y %s", list, list)
	}
	steps := [][]string{{"update", "-q"}, append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)}
	for _, args := range steps {
		c := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w; its last lines:\n%s", strings.Join(args, " "), err, Tail(text, 15))
		}
	}
	return nil
}

// Tail returns the last n lines of text.
func Tail(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
