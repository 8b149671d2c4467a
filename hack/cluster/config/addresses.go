package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// APIPort is the port of the API server on the hub's address.
const APIPort = 6443

// HubIP is the address of the control plane.
func (s Settings) HubIP() netip.Addr { return at(s.Net, 0, 1) }

// HostIP is the address of the machine itself on the members' network.
func (s Settings) HostIP() netip.Addr { return at(s.Net, 0, 254) }

// Index is the number of a node from 1, or 0 when name is no node.
func (s Settings) Index(name string) int { return slices.Index(s.Nodes, name) + 1 }

// IP is the address of a member; the zero Addr when there is none of that name.
func (s Settings) IP(member string) netip.Addr {
	if member == Hub {
		return s.HubIP()
	}
	if k := s.Index(member); k > 0 {
		return at(s.Net, 0, byte(k+1))
	}
	return netip.Addr{}
}

// Pods is the network of a node's pods.
func (s Settings) Pods(node string) netip.Prefix {
	return netip.PrefixFrom(at(s.PodNet, byte(s.Index(node)), 0), 24)
}

// APIService is the address of Service default/kubernetes.
func (s Settings) APIService() netip.Addr { return at(s.ServiceNet, 0, 1) }

// Server is the URL of the API server.
func (s Settings) Server() string {
	return "https://" + s.HubIP().String() + ":" + strconv.Itoa(APIPort)
}

// Members are the hub and the nodes.
func (s Settings) Members() []string { return append([]string{Hub}, s.Nodes...) }

func at(p netip.Prefix, third, fourth byte) netip.Addr {
	b := p.Addr().As4()
	b[2] += third
	b[3] = fourth
	return netip.AddrFrom4(b)
}

// MAC is the hardware address of the interface with this address. It is fixed, so that the others' neighbour
// tables hold when a member starts again; and a bridge without one of its own takes that of a port, and
// changes it when that port's member is lost.
func MAC(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// Link is the hub's end of the link to a node.
func Link(node string) string { return "v-" + node }

// HubLinks are the commands for `ip -batch` inside the hub: its bridge.
func (s Settings) HubLinks() []string {
	return []string{"link set lo up", "link add rf0 address " + MAC(s.HubIP()) + " type bridge",
		"addr add " + s.HubIP().String() + "/24 dev rf0", "link set rf0 up"}
}

// HostLinks are the commands on the host that join it to the hub, whose init is process pid.
func (s Settings) HostLinks(pid int) []string {
	return []string{
		fmt.Sprintf("link add %s address %s type veth peer name host netns %d", s.Interface, MAC(s.HostIP()), pid),
		fmt.Sprintf("addr add %s/24 dev %s", s.HostIP(), s.Interface),
		"link set " + s.Interface + " up",
	}
}

// HostJoin are the commands inside the hub that put the host's link on the bridge.
func HostJoin() []string { return []string{"link set host master rf0 up"} }

// NodeJoin are the commands inside the hub that link a node, whose init is process pid, to the bridge.
func (s Settings) NodeJoin(node string, pid int) []string {
	return []string{
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", Link(node), MAC(s.IP(node)), pid),
		"link set " + Link(node) + " master rf0 up",
	}
}

// NodeLinks are the commands inside a node: its address and its way out.
func (s Settings) NodeLinks(node string) []string {
	return []string{
		"link set lo up",
		"addr add " + s.IP(node).String() + "/24 dev eth0",
		"link set eth0 up",
		"route replace default via " + s.HubIP().String(),
	}
}

// PodRoutes are the commands inside a member that lead to the pods of all nodes but itself.
func (s Settings) PodRoutes(member string) []string {
	var out []string
	for _, n := range s.Nodes {
		if n != member {
			out = append(out, fmt.Sprintf("route replace %s via %s", s.Pods(n), s.IP(n)))
		}
	}
	return out
}

// HostRoutes are the commands on the host that lead to pods, and to Services through node via.
func (s Settings) HostRoutes(via string) []string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, fmt.Sprintf("route replace %s via %s dev %s", s.Pods(n), s.IP(n), s.Interface))
	}
	return append(out, fmt.Sprintf("route replace %s via %s dev %s", s.ServiceNet, s.IP(via), s.Interface))
}

// Clash finds a route of the host, other than the cluster's own, that overlaps the cluster's networks.
// table is the text of /proc/net/route.
func (s Settings) Clash(table string) error {
	for _, line := range strings.Split(table, "\n")[1:] {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == s.Interface {
			continue
		}
		dst, err1 := littleEndian(f[1])
		mask, err2 := littleEndian(f[7])
		if err1 != nil || err2 != nil || mask == (netip.AddrFrom4([4]byte{})) {
			continue // the default route covers everything and clashes with nothing
		}
		have := netip.PrefixFrom(dst, ones(mask))
		for flag, p := range map[string]netip.Prefix{"net": s.Net, "podnet": s.PodNet, "svcnet": s.ServiceNet} {
			if p.Overlaps(have) {
				return fmt.Errorf("--%s %s overlaps the host's route %s on %s: choose another with --%s or %s",
					flag, p, have, f[0], flag, EnvOf(flag))
			}
		}
	}
	return nil
}

func littleEndian(hex string) (netip.Addr, error) {
	v, err := strconv.ParseUint(hex, 16, 32)
	return netip.AddrFrom4([4]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}), err
}

func ones(mask netip.Addr) int {
	n := 0
	for _, b := range mask.As4() {
		for ; b != 0; b <<= 1 {
			n++
		}
	}
	return n
}
