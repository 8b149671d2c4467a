package member

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// A step is one action on the way to a member's own root.
type step struct {
	do             string // mkdir, mount, bind, copy, write, link, node
	from, to       string
	fsType, data   string
	flags          uintptr
	readOnly, tree bool
}

// String is the step as a line of a golden file.
func (s step) String() string {
	out := []string{s.do}
	for _, w := range []string{s.fsType, s.from} {
		if w != "" {
			out = append(out, w)
		}
	}
	out = append(out, "-> "+s.to)
	for w, set := range map[string]bool{"read-only": s.readOnly, "with all below": s.tree} {
		if set {
			out = append(out, w)
		}
	}
	slices.Sort(out[min(len(out), 3):])
	if s.data != "" {
		out = append(out, fmt.Sprintf("%q", s.data))
	}
	return strings.Join(out, " ")
}

// host is what a root's plan must know of the machine.
type host struct {
	top     map[string]string // bin, sbin, lib*: where a link leads, "" for a folder
	etc     []string          // the files of /etc that a member takes along
	devices []string
	groups  []string          // cgroup hierarchies, relative to cgroupFS; "." is v2
	aliases map[string]string // links between hierarchies
}

// etcWanted are the files of /etc that programs of /usr need.
var etcWanted = []string{"passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives"}

// topWanted are the folders beside /usr that programs may be in.
var topWanted = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

var devicesWanted = []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"}

// plan is the way to the root of a member at root: /usr of the machine read-only, all else its own.
func plan(spec Spec, h host, root string, machineID string) []step {
	at := func(p string) string { return filepath.Join(root, p) }
	steps := []step{{do: "mount", fsType: "tmpfs", to: root, data: "mode=755"}}
	for _, d := range []string{"usr", "etc", "proc", "sys", "dev", "run", "tmp", "var", "root", "old", config.KubeBin, config.ContainerdBin, config.CoreDNSBin,
		config.Configs, config.Images, config.Host, "rf/sysctl"} {
		steps = append(steps, step{do: "mkdir", to: at(d)})
	}
	steps = append(steps,
		step{do: "mount", fsType: "tmpfs", to: at("tmp"), data: "mode=1777"},
		step{do: "bind", from: "/usr", to: at("usr"), readOnly: true, tree: true})
	for _, name := range topWanted {
		if link, exists := h.top[name]; exists && link != "" {
			steps = append(steps, step{do: "link", from: link, to: at(name)})
		} else if exists {
			steps = append(steps, step{do: "mkdir", to: at(name)}, step{do: "bind", from: "/" + name, to: at(name), readOnly: true, tree: true})
		}
	}
	for _, name := range h.etc {
		steps = append(steps, step{do: "copy", from: "/etc/" + name, to: at("etc/" + name)})
	}
	write := func(name, text string) { steps = append(steps, step{do: "write", to: at(name), data: text}) }
	write("etc/hostname", spec.Name+"\n")
	write("etc/machine-id", machineID+"\n")
	write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 "+spec.Name+"\n")
	write("etc/resolv.conf", "")
	steps = append(steps,
		step{do: "bind", from: spec.Kube, to: at(config.KubeBin), readOnly: true},
		step{do: "bind", from: spec.Containerd, to: at(config.ContainerdBin), readOnly: true},
		step{do: "bind", from: spec.CoreDNS, to: at(config.CoreDNSBin), readOnly: true},
		step{do: "bind", from: spec.Dir + "/" + ConfigDir, to: at(config.Configs), readOnly: true},
		step{do: "bind", from: spec.Images, to: at(config.Images), readOnly: true},
		step{do: "bind", from: spec.Dir, to: at(config.Host)},
		step{do: "bind", from: spec.Dir + "/" + VarDir, to: at("var")})
	for _, d := range []string{"log/pods", "log/containers", "lib/kubelet", "lib/cni", "lib/containerd", "tmp"} {
		steps = append(steps, step{do: "mkdir", to: at("var/" + d)})
	}
	steps = append(steps, step{do: "link", from: "../run", to: at("var/run")},
		step{do: "mount", fsType: "proc", to: at("proc")}, step{do: "mount", fsType: "sysfs", to: at("sys")})
	steps = append(steps, devSteps(h, at)...)
	steps = append(steps, sysctlSteps(at)...)
	return append(steps, cgroupSteps(spec, h, at)...)
}

func devSteps(h host, at func(string) string) []step {
	steps := []step{{do: "mount", fsType: "tmpfs", to: at("dev"), data: "mode=755", flags: syscall.MS_NOSUID}}
	for _, d := range h.devices {
		steps = append(steps, step{do: "node", from: "/dev/" + d, to: at("dev/" + d)})
	}
	for _, d := range []string{"pts", "shm", "mqueue"} {
		steps = append(steps, step{do: "mkdir", to: at("dev/" + d)})
	}
	steps = append(steps,
		step{do: "mount", fsType: "devpts", to: at("dev/pts"), data: "newinstance,ptmxmode=0666,mode=620"},
		step{do: "mount", fsType: "tmpfs", to: at("dev/shm"), data: "mode=1777"},
		step{do: "mount", fsType: "mqueue", to: at("dev/mqueue")})
	for _, l := range [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"},
		{"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}} {
		steps = append(steps, step{do: "link", from: l[0], to: at("dev/" + l[1])})
	}
	return steps
}

// sysctlSteps make /proc/sys read-only but its per-namespace part, and show over the settings that a kubelet
// insists on the values that it wants: it then writes none, and the machine's stay as they are.
func sysctlSteps(at func(string) string) []step {
	steps := []step{
		{do: "bind", from: at("proc/sys"), to: at("proc/sys"), readOnly: true},
		{do: "mkdir", to: at("rf/proc")},
		{do: "mount", fsType: "proc", to: at("rf/proc")},
		{do: "bind", from: at("rf/proc/sys/net"), to: at("proc/sys/net")},
		{do: "unmount", to: at("rf/proc")},
	}
	wanted := config.Sysctls()
	var names []string
	for n := range wanted {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		file := at("rf/sysctl/" + strings.ReplaceAll(n, "/", "."))
		steps = append(steps, step{do: "write", to: file, data: wanted[n] + "\n"},
			step{do: "bind", from: file, to: at("proc/sys/" + n), readOnly: true})
	}
	return steps
}

// cgroupSteps show a node its own groups as the root of every hierarchy; the hub needs none.
func cgroupSteps(spec Spec, h host, at func(string) string) []step {
	if spec.Hub {
		return []step{{do: "mount", fsType: "tmpfs", to: at(cgroupFS), flags: syscall.MS_RDONLY}}
	}
	own := filepath.Join(spec.Cgroup, spec.Name)
	if slices.Equal(h.groups, []string{"."}) {
		return []step{{do: "bind", from: filepath.Join(cgroupFS, own), to: at(cgroupFS)}}
	}
	steps := []step{{do: "mount", fsType: "tmpfs", to: at(cgroupFS), data: "mode=755"}}
	for _, g := range h.groups {
		steps = append(steps, step{do: "mkdir", to: at(cgroupFS + "/" + g)},
			step{do: "bind", from: filepath.Join(cgroupFS, g, own), to: at(cgroupFS + "/" + g)})
	}
	var names []string
	for n := range h.aliases {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		steps = append(steps, step{do: "link", from: h.aliases[n], to: at(cgroupFS + "/" + n)})
	}
	return steps
}
