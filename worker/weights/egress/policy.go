// Package egress decides which addresses weights may be fetched from. A model's URI is written by whoever may create a
// model, so it must not make a worker read what only the worker's network can reach: the check is made on the address
// that is dialled, after the name was resolved, and again on every redirect. The package decides nothing about what is
// fetched, retries nothing and knows no source; package source does.
package egress

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// never are addresses that no option opens: link-local ones and the metadata services of clouds, which hand out the
// node's credentials.
var never = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32",
	"192.0.0.192/32", "0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "240.0.0.0/4")

// private are addresses that are reached only where Policy.Allow holds them.
var private = prefixes("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
	"192.0.0.0/24", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "fec0::/10")

// embedding prefixes hold an IPv4 address, which is judged instead: NAT64 and 6to4.
var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4  = netip.MustParsePrefix("2002::/16")
	compatV = netip.MustParsePrefix("::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// ForbiddenError is an address or a URL that may not be fetched from.
type ForbiddenError struct {
	// Says is a sentence with what was asked for, without credentials.
	Says string
}

func (e *ForbiddenError) Error() string { return e.Says }

func forbid(format string, args ...any) *ForbiddenError {
	return &ForbiddenError{Says: fmt.Sprintf(format, args...)}
}

// Policy says where connections may go. The zero Policy allows public addresses.
type Policy struct {
	// Allow holds networks besides the public ones, such as that of an object store in the cluster. Link-local addresses
	// and metadata services stay closed whatever it holds.
	Allow []netip.Prefix
}

// Check returns a *ForbiddenError unless a may be dialled.
func (p Policy) Check(a netip.Addr) error {
	real := embedded(a.Unmap().WithZone(""))
	if within(never, real) || !real.IsValid() {
		return forbid("the address %s is link-local, a metadata service or no host's: weights are never fetched from there", a)
	}
	if within(p.Allow, real) || !within(private, real) {
		return nil
	}
	return forbid("the address %s is private: weights are fetched from there only where --weights-allow-networks holds it", a)
}

// embedded returns the IPv4 address that a IPv6 transition address leads to, or a.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case a.Is4():
		return a
	case nat64.Contains(a), compatV.Contains(a) && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

func within(in []netip.Prefix, a netip.Addr) bool {
	for _, p := range in {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckURL returns a *ForbiddenError unless u is https, or http where plain is true, and names its host in the one way
// that is not ambiguous: a name of ASCII letters, digits and hyphens, or an IP address as it is usually written. A literal
// address is checked too, since a proxy would dial it for us.
func (p Policy) CheckURL(u *url.URL, plain bool) error {
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !plain):
		return forbid("%s has scheme %q, expected https", Shorten(u), u.Scheme)
	case u.User != nil:
		return forbid("%s has a user or a password in it: credentials are not part of a URI", Shorten(u))
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return p.Check(a)
	}
	if !isName(host) {
		return forbid("%q is neither a host's name nor an IP address as it is usually written", host)
	}
	return nil
}

// isName reports whether s is a DNS name that no resolver takes for a number: some read 0x7f.1 and 2130706433 as
// addresses.
func isName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isLabel(l) {
			return false
		}
	}
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(strings.ToLower(last), "0x")
}

func isLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for _, c := range []byte(l) {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// Shorten returns u for messages: without user, query and fragment, where credentials are.
func Shorten(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Networks reads a list of networks such as 10.0.0.0/8,192.168.1.7, separated by commas.
func Networks(list string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, errAddr := netip.ParseAddr(s)
			if errAddr != nil {
				return nil, fmt.Errorf("%q is no network such as 10.0.0.0/8", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// controlled returns the address of a dial as it is about to be made.
func controlled(address string) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, forbid("%q is no address", address)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, forbid("%q is no address", address)
	}
	return a, nil
}
