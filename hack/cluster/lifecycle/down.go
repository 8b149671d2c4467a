package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// Down ends the cluster and removes all that it made on the machine. Without a cluster it removes what an
// interrupted predecessor may have left.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.removable(); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.dropGone(); err != nil {
		return err
	}
	began := c.Clock.Now()
	if s, ok, err := c.stored(); err != nil {
		return err
	} else if ok {
		c.Settings = s
	}
	dirs, err := os.ReadDir(c.file("members"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range dirs {
		if err := member.Kill(ctx, c.file("members", d.Name())); err != nil {
			return err
		}
	}
	if err := member.SweepCgroups(ctx, c.Settings.Cgroup, ""); err != nil {
		return err
	}
	if err := member.DropHostLink(ctx, c.Settings); err != nil {
		return err
	}
	if err := c.removeState(); err != nil {
		return err
	}
	c.say("cluster %s is down after %.1f s", c.Settings.Name, c.Clock.Since(began).Seconds())
	return nil
}

// removable refuses a folder that holds what no cluster wrote: it would be removed with all in it.
func (c *Cluster) removable() error {
	entries, err := os.ReadDir(c.Settings.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state folder: %w", err)
	}
	ours := map[string]bool{settingsFile: true, settingsFile + ".new": true, kubeconfigFile: true, kubeconfigFile + ".new": true,
		imagesDir: true, pkiDir: true, "members": true}
	for _, e := range entries {
		if !ours[e.Name()] {
			return fmt.Errorf("remove the state folder %s: %s in it belongs to no cluster; give the right --state", c.Settings.State, e.Name())
		}
	}
	return nil
}

// gone is the end of the name of a state folder that is being removed.
const gone = ".gone"

// dropGone removes what a down that was interrupted left of a state folder.
func (c *Cluster) dropGone() error {
	if err := os.RemoveAll(c.Settings.State + gone); err != nil {
		return fmt.Errorf("remove the state folder of before: %w", err)
	}
	return nil
}

// removeState removes the state folder, unless something is mounted below it.
func (c *Cluster) removeState() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	state, err := filepath.EvalSymlinks(c.Settings.State)
	if err != nil {
		return err
	}
	if m := mountBelow(string(mounts), state); m != "" {
		return fmt.Errorf("remove the state folder: %s is mounted; unmount it, then run down again", m)
	}
	// Half a state must never be taken for one: it moves aside at once, and then goes.
	if err := os.Rename(state, state+gone); err != nil {
		return fmt.Errorf("remove the state folder: %w", err)
	}
	if err := os.RemoveAll(state + gone); err != nil {
		return fmt.Errorf("remove the state folder: %w", err)
	}
	// The folder above was made for states only; it goes when it is empty.
	if parent := filepath.Dir(state); filepath.Base(parent) == "ringfleet" {
		_ = os.Remove(parent) // an error means that another cluster lives there
	}
	return nil
}

// mountBelow finds a mount point in dir in the text of /proc/PID/mountinfo.
func mountBelow(mountinfo, dir string) string {
	for _, line := range strings.Split(mountinfo, "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4]+"/", dir+"/") {
			return f[4]
		}
	}
	return ""
}
