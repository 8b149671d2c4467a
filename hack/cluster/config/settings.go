// Package config decides what a cluster is made of: its addresses, its members, and every argument and
// file that a component starts with. It is pure: it reads no file and no clock, and starts nothing.
// Package member starts the members, package lifecycle writes the files.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Hub is the name of the member that runs the control plane.
const Hub = "hub"

// Settings describe one cluster. They are stored beside its state, so that every later command needs only
// the cluster's name or state folder.
type Settings struct {
	// Name tells clusters on one machine apart. Cgroup, Interface and State are derived from it when empty.
	Name string `json:"name"`
	// Nodes are the worker nodes, in the order of their addresses. A later up may append to the list.
	Nodes []string `json:"nodes"`
	// Net is the /24 network of hub (.1), nodes (.2 and on) and the host's own end (.254).
	Net netip.Prefix `json:"net"`
	// PodNet is a /16 network; the node of index k has its k-th /24 (from 1).
	PodNet netip.Prefix `json:"podNet"`
	// ServiceNet is the /16 network of Service addresses.
	ServiceNet netip.Prefix `json:"serviceNet"`
	// Cgroup is the folder of the cluster in every cgroup hierarchy.
	Cgroup string `json:"cgroup"`
	// Interface is the host's only link to the cluster, at most 15 bytes.
	Interface string `json:"interface"`
	// State is the folder of everything that the cluster writes; down removes it.
	State string `json:"state"`
	// NodeMilliCPU is the CPU that a node advertises, in thousandths; 0 is an even share of the machine.
	NodeMilliCPU int64 `json:"nodeMilliCPU"`
	// NodeMiB is the memory that a node advertises, in MiB; 0 is an even share of the machine.
	NodeMiB int64 `json:"nodeMiB"`
}

// Flags are the settings as text, before Settings checks them.
type Flags struct {
	Name, Net, PodNet, ServiceNet, Cgroup, Interface, State string
	Nodes                                                   []string
	NodeMilliCPU, NodeMiB                                   int64
}

// Bind adds the flags to fs. The environment variable of flag --some-name is CLUSTER_SOME_NAME, and a flag
// on the command line wins over it; getenv is os.Getenv.
func (f *Flags) Bind(fs *pflag.FlagSet, getenv func(string) string) error {
	fs.StringVar(&f.Name, "name", "ringfleet", "name of the cluster; cgroup, interface and state follow from it")
	fs.StringSliceVar(&f.Nodes, "nodes", []string{"n1", "n2"}, "names of the nodes, at most 13 bytes each")
	fs.StringVar(&f.Net, "net", "10.245.0.0/24", "network of the members, a /24")
	fs.StringVar(&f.PodNet, "podnet", "10.244.0.0/16", "network of the pods, a /16")
	fs.StringVar(&f.ServiceNet, "svcnet", "10.96.0.0/16", "network of the Services, a /16")
	fs.StringVar(&f.Cgroup, "cgroup", "", "folder in every cgroup hierarchy (default: the name)")
	fs.StringVar(&f.Interface, "iface", "", "host interface, at most 15 bytes (default: rf- and the name)")
	fs.StringVar(&f.State, "state", "", "state folder (default: $XDG_STATE_HOME or ~/.local/state, /ringfleet/cluster-NAME)")
	fs.Int64Var(&f.NodeMilliCPU, "node-cpu", 0, "CPU that a node advertises, in thousandths (default: an even share)")
	fs.Int64Var(&f.NodeMiB, "node-memory", 0, "memory that a node advertises, in MiB (default: an even share)")
	var errs []error
	fs.VisitAll(func(fl *pflag.Flag) {
		env := EnvOf(fl.Name)
		fl.Usage += " [" + env + "]"
		if v := getenv(env); v != "" {
			if err := fl.Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("%s=%s: %w", env, v, err))
			}
		}
	})
	return errors.Join(errs...)
}

// EnvOf names the environment variable of a flag.
func EnvOf(flag string) string {
	return "CLUSTER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

var (
	memberName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,11}[a-z0-9])?$`)
	pathName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	linkName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`)
)

// Settings fills what is empty and checks the rest; stateHome is the folder that holds cluster states.
func (f Flags) Settings(stateHome string) (Settings, error) {
	s := Settings{Name: f.Name, Nodes: f.Nodes, Cgroup: f.Cgroup, Interface: f.Interface, State: f.State,
		NodeMilliCPU: f.NodeMilliCPU, NodeMiB: f.NodeMiB}
	if s.Cgroup == "" {
		s.Cgroup = s.Name
	}
	if s.Interface == "" {
		s.Interface = "rf-" + s.Name[:min(len(s.Name), 12)]
	}
	if s.State == "" {
		s.State = stateHome + "/cluster-" + s.Name
	}
	var errs []error
	for _, p := range []struct {
		flag, text string
		bits       int
		to         *netip.Prefix
	}{{"net", f.Net, 24, &s.Net}, {"podnet", f.PodNet, 16, &s.PodNet}, {"svcnet", f.ServiceNet, 16, &s.ServiceNet}} {
		v, err := netip.ParsePrefix(p.text)
		if err != nil || !v.Addr().Is4() || v.Bits() != p.bits || v.Masked() != v {
			errs = append(errs, fmt.Errorf("--%s %q: want an IPv4 network with /%d, such as 10.200.0.0/%d", p.flag, p.text, p.bits, p.bits))
		}
		*p.to = v
	}
	return s, errors.Join(append(errs, s.validate())...)
}

func (s Settings) validate() error {
	var errs []error
	if !pathName.MatchString(s.Name) {
		errs = append(errs, fmt.Errorf("--name %q: want letters, digits, '.', '_' and '-'", s.Name))
	}
	if !pathName.MatchString(s.Cgroup) {
		errs = append(errs, fmt.Errorf("--cgroup %q: want one folder name of letters, digits, '.', '_' and '-'", s.Cgroup))
	}
	if !linkName.MatchString(s.Interface) {
		errs = append(errs, fmt.Errorf("--iface %q: want 1 to 15 letters, digits, '.', '_' and '-'", s.Interface))
	}
	if !strings.HasPrefix(s.State, "/") {
		errs = append(errs, fmt.Errorf("--state %q: want an absolute path", s.State))
	}
	if s.NodeMilliCPU < 0 || s.NodeMiB < 0 {
		errs = append(errs, errors.New("--node-cpu, --node-memory: want 0 or more"))
	}
	return errors.Join(append(errs, s.validateNodes(), s.validateNets())...)
}

func (s Settings) validateNodes() error {
	var errs []error
	if len(s.Nodes) == 0 || len(s.Nodes) > 64 {
		errs = append(errs, fmt.Errorf("--nodes: want 1 to 64 names, got %d", len(s.Nodes)))
	}
	for i, n := range s.Nodes {
		if !memberName.MatchString(n) || n == Hub {
			errs = append(errs, fmt.Errorf("--nodes: %q: want at most 13 lower-case letters, digits and '-', and not %q", n, Hub))
		}
		if slices.Contains(s.Nodes[:i], n) {
			errs = append(errs, fmt.Errorf("--nodes: %q is named twice", n))
		}
	}
	return errors.Join(errs...)
}

func (s Settings) validateNets() error {
	var errs []error
	nets := []netip.Prefix{s.Net, s.PodNet, s.ServiceNet}
	for i, a := range nets {
		for _, b := range nets[:i] {
			if a.IsValid() && b.IsValid() && a.Overlaps(b) {
				errs = append(errs, fmt.Errorf("--net, --podnet, --svcnet: %s and %s overlap", a, b))
			}
		}
	}
	return errors.Join(errs...)
}

// Keeping is s with the nodes that were added to old before: who names the first ones only means all of them.
func (s Settings) Keeping(old Settings) Settings {
	if n := len(s.Nodes); n <= len(old.Nodes) && slices.Equal(s.Nodes, old.Nodes[:n]) {
		s.Nodes = old.Nodes
	}
	return s
}

// Extends says why s may not follow old on a cluster that exists, or returns nil: nodes may be appended and
// shares may change for nodes that start from now on; all else is fixed.
func (s Settings) Extends(old Settings) error {
	kept := len(s.Nodes) >= len(old.Nodes) && slices.Equal(s.Nodes[:len(old.Nodes)], old.Nodes)
	same := s.Net == old.Net && s.PodNet == old.PodNet && s.ServiceNet == old.ServiceNet &&
		s.Cgroup == old.Cgroup && s.Interface == old.Interface && s.State == old.State
	if kept && same {
		return nil
	}
	return fmt.Errorf("cluster %q exists with nodes %s, networks %s %s %s, cgroup %s, interface %s: "+
		"nodes may be appended, the rest is fixed; run down first", old.Name, strings.Join(old.Nodes, ","),
		old.Net, old.PodNet, old.ServiceNet, old.Cgroup, old.Interface)
}
