package member

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// EnterArgs is the command line that runs command inside the member whose init is process pid.
func EnterArgs(pid int, command []string) []string {
	return append([]string{"nsenter", "--target=" + strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup",
		"--root", "--wd", "--", "/usr/bin/env", "--ignore-environment", "PATH=" + config.Path, "HOME=/root", "LANG=C.UTF-8"}, command...)
}

// Enter runs command inside the member in dir and returns its output.
func Enter(ctx context.Context, dir string, command []string) (string, error) {
	pid, err := PID(dir)
	if err != nil {
		return "", err
	}
	if pid == 0 {
		return "", fmt.Errorf("run %s: the member in %s does not run; start it with node restart", command[0], dir)
	}
	args := EnterArgs(pid, command)
	return output(exec.CommandContext(ctx, args[0], args[1:]...), "")
}

// ip runs commands of `ip -batch`, in the network of process pid or, with 0, on the host.
func ip(ctx context.Context, pid int, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	args := []string{"ip", "-batch", "-"}
	if pid != 0 {
		args = append([]string{"nsenter", "--target=" + strconv.Itoa(pid), "--net", "--"}, args...)
	}
	_, err := output(exec.CommandContext(ctx, args[0], args[1:]...), strings.Join(lines, "\n")+"\n")
	return err
}

// links names the links in the network of process pid, or of the host.
func links(ctx context.Context, pid int) (map[string]bool, error) {
	args := []string{"ip", "-oneline", "link", "show"}
	if pid != 0 {
		args = append([]string{"nsenter", "--target=" + strconv.Itoa(pid), "--net", "--"}, args...)
	}
	text, err := output(exec.CommandContext(ctx, args[0], args[1:]...), "")
	return parseLinks(text), err
}

// parseLinks reads `ip -oneline link show`: the names, and whether each link is switched on.
func parseLinks(text string) map[string]bool {
	out := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(f[1], ":"), "@")
		for _, flag := range strings.Split(strings.Trim(f[2], "<>"), ",") {
			out[name] = out[name] || flag == "UP"
		}
	}
	return out
}

func output(c *exec.Cmd, stdin string) (string, error) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if stdin != "" {
		c.Stdin = strings.NewReader(stdin)
	}
	c.Env = append(os.Environ(), "LC_ALL=C")
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
