package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	cgroupFS = "/sys/fs/cgroup"
	// daemons is the member's own group of init and components, beside the one of its pods.
	daemons = "daemons"
	// A group's CPU weight against one process of the same level, which has 1024: the cluster is many
	// processes, the hub must not starve beside busy pods.
	clusterShares, hubShares, nodeShares, daemonShares = 8192, 8192, 4096, 4096
)

// hierarchies are the folders below which a cluster has its groups: one for each controller of cgroup v1, or
// the only one of v2.
func hierarchies() ([]string, bool, error) {
	if _, err := os.Stat(cgroupFS + "/cgroup.controllers"); err == nil {
		return []string{cgroupFS}, true, nil
	}
	entries, err := os.ReadDir(cgroupFS)
	if err != nil {
		return nil, false, fmt.Errorf("read the cgroup hierarchies: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "unified" { // a link leads to a folder that is listed itself
			out = append(out, filepath.Join(cgroupFS, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, false, errors.New("read the cgroup hierarchies: none is mounted at " + cgroupFS)
	}
	return out, false, nil
}

// joinCgroups makes the groups of a member and moves process pid there.
func joinCgroups(cluster, member string, hub bool, pid int) error {
	all, v2, err := hierarchies()
	if err != nil {
		return err
	}
	weight := nodeShares
	if hub {
		weight = hubShares
	}
	for _, h := range all {
		dir := h
		for _, level := range []struct {
			name   string
			shares int
		}{{cluster, clusterShares}, {member, weight}, {daemons, daemonShares}} {
			if v2 {
				if err := delegate(dir); err != nil {
					return err
				}
			}
			dir = filepath.Join(dir, level.name)
			if err := makeGroup(dir, level.shares); err != nil {
				return err
			}
		}
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d to cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

// makeGroup makes one group; cpuset of v1 accepts no process before it knows its CPUs.
func makeGroup(dir string, shares int) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup %s: %w", dir, err)
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || strings.TrimSpace(string(have)) != "" || v2File(dir) {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f), above, 0)
		}
		if err != nil {
			return fmt.Errorf("fill %s of cgroup %s: %w", f, dir, err)
		}
	}
	for file, value := range map[string]int{"cpu.shares": shares, "cpu.weight": shares * 100 / 1024} {
		name := filepath.Join(dir, file)
		if _, err := os.Stat(name); err != nil {
			continue
		}
		if err := os.WriteFile(name, []byte(strconv.Itoa(value)), 0); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

func v2File(dir string) bool {
	_, err := os.Stat(dir + "/cgroup.type")
	return err == nil
}

// delegate lets the groups below dir use every controller that dir has (cgroup v2).
func delegate(dir string) error {
	text, err := os.ReadFile(dir + "/cgroup.controllers")
	if err != nil {
		return fmt.Errorf("read the controllers of cgroup %s: %w", dir, err)
	}
	for _, c := range strings.Fields(string(text)) {
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
			return fmt.Errorf("delegate %s of cgroup %s: %w", c, dir, err)
		}
	}
	return nil
}

// SweepCgroups kills what is left in the groups of a member, or of the whole cluster when member is empty,
// and removes them. Only processes that a cluster of this name started are ever in there.
func SweepCgroups(ctx context.Context, cluster, member string) error {
	all, _, err := hierarchies()
	if err != nil {
		return err
	}
	return await(ctx, killWait, "end of cgroup "+filepath.Join(cluster, member), func() (bool, error) {
		left := false
		for _, h := range all {
			dir := filepath.Join(h, cluster, member)
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			if err := sweep(dir); err != nil {
				return false, err
			}
			_, err := os.Stat(dir)
			left = left || err == nil
		}
		return !left, nil
	})
}

// sweep goes once through dir from the bottom: SIGKILL to every process, then rmdir, which the kernel
// refuses while a process ends; the caller comes again.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		return fmt.Errorf("read cgroup %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := sweep(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := killAll(dir); err != nil {
		return err
	}
	err = os.Remove(dir)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// killAll sends SIGKILL to every process of the group dir itself.
func killAll(dir string) error {
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the processes of cgroup %s: %w", dir, err)
	}
	for _, p := range strings.Fields(string(procs)) {
		if pid, err := strconv.Atoi(p); err == nil && pid > 1 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, dir, err)
			}
		}
	}
	return nil
}
