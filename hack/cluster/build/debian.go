package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// programs are what the members need from the machine, and the Debian package of each.
func programs() map[string]string {
	return map[string]string{
		"runc": "runc", "nft": "nftables", "iptables": "iptables", "ip": "iproute2", "nsenter": "util-linux",
		config.CNIPlugins + "/ptp": "containernetworking-plugins",
	}
}

// missing returns the packages of the programs that has denies, in the order of want.
func missing(has func(program string) bool) []string {
	var out []string
	p := programs()
	for _, program := range []string{"runc", config.CNIPlugins + "/ptp", "ip", "nft", "iptables", "nsenter"} {
		if !has(program) {
			out = append(out, p[program])
		}
	}
	return out
}

func has(program string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	_, err := os.Stat("/usr/sbin/" + program) // a user's PATH often lacks it
	return err == nil
}

// Packages installs the Debian packages that the machine lacks, and says so.
func Packages(ctx context.Context, out io.Writer) error {
	lacks := missing(has)
	if len(lacks) == 0 {
		return nil
	}
	list := strings.Join(lacks, " ")
	if _, err := fmt.Fprintf(out, "installing Debian packages: %s\n", list); err != nil {
		return err
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: no apt-get here; install what has these programs yourself", list)
	}
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-y", "-q", "--no-install-recommends"}, lacks...)} {
		c := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w:\n%s", args[0], err, text)
		}
	}
	if lacks = missing(has); len(lacks) > 0 {
		return fmt.Errorf("install %s: still missing %s", list, strings.Join(lacks, " "))
	}
	return nil
}
