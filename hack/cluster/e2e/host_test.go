//go:build e2e

package e2e

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// volatile are kernel settings that change on their own.
var volatile = regexp.MustCompile(`^/proc/sys/(fs/(dentry-state|inode-nr|inode-state|file-nr|aio-nr|quota/)|` +
	`kernel/(ns_last_pid|random/|pty/nr|sched_domain|perf_)|net/netfilter/nf_conntrack_count|` +
	`net/ipv4/tcp_fastopen_key)`)

// ofLinks are the kernel settings of single links, which come and go with them.
var ofLinks = regexp.MustCompile(`^/proc/sys/net/ipv[46]/(conf|neigh)/([^/]+)/`)

// host is all that a cluster could have changed on the machine, one line each.
func host(t *testing.T) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	add := func(kind, text string) {
		for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
			lines[kind+": "+l] = true
		}
	}
	rules, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		t.Fatalf("nft list ruleset: %v", err)
	}
	add("packet filter", string(rules))
	for kind, file := range map[string]string{"route": "/proc/net/route", "IPv6 route": "/proc/net/ipv6_route", "bridge": "/proc/net/dev"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Split(string(text), "\n") {
			if f := strings.Fields(l); kind == "bridge" && len(f) > 0 {
				add("link", f[0])
			} else if kind == "IPv6 route" && len(f) == 10 {
				add(kind, f[0]+"/"+f[1]+" "+f[9]) // the rest counts uses
			} else if kind == "route" {
				add(kind, l)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	add("mount", string(mounts))
	add("files", strings.Join(tree(t, "/run", 2), "\n"))
	add("files", strings.Join(tree(t, "/var/lib", 2), "\n"))
	add("cgroup", strings.Join(tree(t, "/sys/fs/cgroup", 2), "\n"))
	add("sysctl", strings.Join(sysctls(), "\n"))
	return lines
}

// tree lists the folders below dir down to a depth.
func tree(t *testing.T, dir string, depth int) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it went meanwhile
	}
	var out []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if strings.HasPrefix(name, "/sys/") && !e.IsDir() {
			continue
		}
		out = append(out, name)
		if e.IsDir() && depth > 1 {
			out = append(out, tree(t, name, depth-1)...)
		}
	}
	return out
}

func sysctls() []string {
	var out []string
	_ = filepath.WalkDir("/proc/sys", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // some go
		}
		if d.IsDir() || volatile.MatchString(name) {
			return nil
		}
		if m := ofLinks.FindStringSubmatch(name); m != nil && m[2] != "all" && m[2] != "default" {
			return nil
		}
		if text, err := os.ReadFile(name); err == nil {
			out = append(out, name+" = "+strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " | "))
		}
		return nil
	})
	return out
}

// unchanged asserts that the machine is as it was.
func unchanged(t *testing.T, before map[string]bool) {
	t.Helper()
	after := host(t)
	for _, l := range slices.Sorted(maps.Keys(after)) {
		if !before[l] {
			t.Errorf("new on the host: %s", l)
		}
	}
	for _, l := range slices.Sorted(maps.Keys(before)) {
		if !after[l] {
			t.Errorf("gone from the host: %s", l)
		}
	}
}
