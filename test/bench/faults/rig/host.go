package rig

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Host is a network of its own, as another machine has it: a namespace with two addresses, joined to this machine by a
// pair of interfaces. What is sent to or from one of them can be dropped without a word.
type Host struct {
	// Address and Other are the host's addresses, Here is this machine's end.
	Address, Other, Here string

	name, link string
	macs       map[string]string // by address
}

// hosts numbers them, so that their networks differ.
var hosts atomic.Int32

// NewHost makes a host. It needs root and iproute2. Close removes it.
func (r *Rig) NewHost(ctx context.Context) (*Host, error) {
	n := hosts.Add(1)
	net := fmt.Sprintf("10.213.%d.", n)
	h := &Host{Address: net + "2", Other: net + "3", Here: net + "1", name: fmt.Sprintf("rf-faults-%d-%d", os.Getpid(), n),
		link: fmt.Sprintf("rff%d.%d", os.Getpid()%100000, n)}
	steps := []string{
		"netns add " + h.name,
		"link add " + h.link + " type veth peer name eth0 netns " + h.name,
		"addr add " + h.Here + "/24 dev " + h.link,
		"link set " + h.link + " up",
		"-n " + h.name + " link set lo up",
		"-n " + h.name + " addr add " + h.Address + "/24 dev eth0",
		"-n " + h.name + " addr add " + h.Other + "/24 dev eth0",
		"-n " + h.name + " link set eth0 up",
	}
	r.hosts = append(r.hosts, h)
	for _, s := range steps {
		if err := ip(ctx, s); err != nil {
			return nil, err
		}
	}
	there, err := output(ctx, "ip", "netns", "exec", h.name, "cat", "/sys/class/net/eth0/address")
	if err != nil {
		return nil, err
	}
	here, err := os.ReadFile("/sys/class/net/" + h.link + "/address")
	if err != nil {
		return nil, err
	}
	h.macs = map[string]string{h.Address: there, h.Other: there, h.Here: strings.TrimSpace(string(here))}
	return h, nil
}

// nobody is an address on the wire that no interface has: what is sent to it is dropped by the other end.
const nobody = "02:00:00:00:de:ad"

// To drops what this machine sends to an address of the host, or lets it through again.
func (h *Host) To(ctx context.Context, address string, drop bool) error {
	return ip(ctx, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", address, h.mac(address, drop), h.link))
}

// From drops all that the host sends to this machine, or lets it through again.
func (h *Host) From(ctx context.Context, drop bool) error {
	return ip(ctx, fmt.Sprintf("-n %s neigh replace %s lladdr %s dev eth0 nud permanent", h.name, h.Here, h.mac(h.Here, drop)))
}

func (h *Host) mac(address string, drop bool) string {
	if drop {
		return nobody
	}
	return h.macs[address]
}

// inside returns how a program is started on the host. On no host it is started as it is.
func (h *Host) inside(path string, args []string) (string, []string) {
	if h == nil {
		return path, args
	}
	return "/bin/sh", append([]string{"-c", `exec ip netns exec "$@"`, "sh", h.name, path}, args...)
}

// close removes the host; the other end of its link goes with it.
func (h *Host) close(ctx context.Context) error { return ip(ctx, "netns del "+h.name) }

func ip(ctx context.Context, args string) error {
	_, err := output(ctx, "ip", strings.Fields(args)...)
	return err
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	out, err := process.Run(ctx, process.Spec{Path: path, Args: args})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(out), nil
}
