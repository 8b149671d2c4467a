package pki

import (
	"net/netip"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

const (
	masters = "system:masters"
	nodes   = "system:nodes"
)

// Admin is who the cluster's user is.
func Admin() Name { return Name{Organization: masters, CommonName: "admin"} }

// HubPairs are the certificates of the control plane by file name; those of HubClients go into kubeconfigs.
func HubPairs(s config.Settings) map[string]Name {
	return map[string]Name{
		"kube-apiserver": {CommonName: "kube-apiserver",
			DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), s.APIService(), s.HubIP()}},
		"kubelet-client": {Organization: masters, CommonName: "apiserver-kubelet-client"},
		"front-proxy":    {CommonName: "front-proxy"},
	}
}

// HubClients are the clients inside the hub by the name of their kubeconfig.
func HubClients() map[string]Name {
	return map[string]Name{
		"admin":                   Admin(),
		"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
		"kube-scheduler":          {CommonName: "system:kube-scheduler"},
		"coredns":                 {Organization: masters, CommonName: "coredns"}, // no built-in role lets it watch all it needs
	}
}

// NodePairs are the serving certificates of a node by file name.
func NodePairs(s config.Settings, node string) map[string]Name {
	return map[string]Name{"kubelet": {Organization: nodes, CommonName: "system:node:" + node,
		DNS: []string{node}, IPs: []netip.Addr{s.IP(node)}}}
}

// NodeClients are the clients inside a node by the name of their kubeconfig.
func NodeClients(node string) map[string]Name {
	return map[string]Name{
		"kubelet":    {Organization: nodes, CommonName: "system:node:" + node},
		"kube-proxy": {CommonName: "system:kube-proxy"},
	}
}
