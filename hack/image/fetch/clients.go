package fetch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ringfleet/ringfleet/hack/image/apt"
)

// Clients downloads with the registries' own clients, and installs from Debian the one that is missing.
type Clients struct{ Out io.Writer }

// Download brings the archive of p into dir, which must be empty, and returns its path.
func (c Clients) Download(ctx context.Context, p Package, dir string) (string, error) {
	var cmd []string
	var err error
	switch p.Client {
	case NPM:
		if err = c.need(ctx, p, "npm", "npm"); err == nil {
			cmd = []string{"npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir, p.Spec}
		}
	case Pip:
		if cmd, err = c.pip(ctx, p); err == nil {
			cmd = append(cmd, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", dir, p.Spec)
		}
	default:
		err = fmt.Errorf("no client called %q", p.Client)
	}
	if err != nil {
		return "", err
	}
	if err := run(ctx, dir, cmd...); err != nil {
		return "", err
	}
	return only(dir)
}

// pip returns the command of the first pip that works: beside a pip on the PATH, some machines have only a
// module of python3, others only another Python's.
func (c Clients) pip(ctx context.Context, p Package) ([]string, error) {
	tries := [][]string{{"pip"}, {"pip3"}, {"python3", "-m", "pip"}, {"/usr/bin/python3", "-m", "pip"}}
	works := func() []string {
		for _, t := range tries {
			if exec.CommandContext(ctx, t[0], append(t[1:len(t):len(t)], "--version")...).Run() == nil {
				return t
			}
		}
		return nil
	}
	if t := works(); t != nil {
		return t, nil
	}
	if err := apt.Install(ctx, c.Out, "pip downloads "+p.Title, "python3-pip"); err != nil {
		return nil, err
	}
	if t := works(); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("find pip: package python3-pip is installed, but no pip runs")
}

func (c Clients) need(ctx context.Context, p Package, program, debian string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	if err := apt.Install(ctx, c.Out, program+" downloads "+p.Title, debian); err != nil {
		return err
	}
	_, err := exec.LookPath(program)
	return err
}

// run runs a client in dir, away from any project's settings files.
func run(ctx context.Context, dir string, cmd ...string) error {
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PIP_DISABLE_PIP_VERSION_CHECK=1", "NPM_CONFIG_UPDATE_NOTIFIER=false")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w; check the client's registry settings; its last lines:\n%s", c, err, apt.Tail(text, 12))
	}
	return nil
}

// only returns the one file of dir.
func only(dir string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the download left %d files, expected one archive: %q", len(found), found)
	}
	return found[0], nil
}
