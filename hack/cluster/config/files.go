package config

import (
	"fmt"
	"strings"
)

// evictionMiB of a node's memory are kept free by eviction and come off what it advertises.
const evictionMiB = 100

// Machine is the capacity of the host, which every kubelet reports as its own.
type Machine struct{ MilliCPU, MiB int64 }

// Share is what one node advertises: the setting, or an even share of the machine.
func (s Settings) Share(m Machine) Machine {
	n := int64(len(s.Nodes))
	share := Machine{MilliCPU: m.MilliCPU / n, MiB: m.MiB / n}
	if s.NodeMilliCPU > 0 {
		share.MilliCPU = min(s.NodeMilliCPU, m.MilliCPU)
	}
	if s.NodeMiB > 0 {
		share.MiB = min(s.NodeMiB, m.MiB)
	}
	return share
}

// NodeFiles are the files of a node's folder Configs, but its keys and kubeconfigs.
func (s Settings) NodeFiles(node string, m Machine) map[string]string {
	return map[string]string{
		"kubelet.yaml":        s.kubelet(node, m),
		"kube-proxy.yaml":     s.proxy(node),
		"containerd.toml":     containerd(),
		"cni/10-p2p.conflist": s.cni(node),
	}
}

// HubFiles are the files of the hub's folder Configs, but its keys and kubeconfigs.
func (s Settings) HubFiles() map[string]string {
	return map[string]string{"Corefile": fmt.Sprintf(`.:53 {
	bind %s
	errors
	cache 5
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig /rf/cfg/coredns.kubeconfig
		ttl 5
	}
}
`, s.HubIP())}
}

func (s Settings) kubelet(node string, m Machine) string {
	share := s.Share(m)
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /rf/cfg/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /rf/cfg/kubelet.crt
tlsPrivateKeyFile: /rf/cfg/kubelet.key
address: %s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDomain: cluster.local
# CoreDNS runs in the hub.
clusterDNS: [%s]
resolvConf: /etc/resolv.conf
# The node's own cgroup is the root that it sees; the machine may still use cgroup v1.
cgroupDriver: cgroupfs
cgroupRoot: /
cgroupsPerQOS: true
failCgroupV1: false
failSwapOn: false
# Without CAP_SYS_RESOURCE a lower score is refused.
oomScoreAdj: 0
makeIPTablesUtilChains: false
protectKernelDefaults: true
# An imported image stays usable by its name when the same image was also pulled by another.
imagePullCredentialsVerificationPolicy: NeverVerify
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: %dMi}
# A kubelet sees the whole machine: what is not this node's share is reserved.
systemReserved: {cpu: %dm, memory: %dMi}
volumePluginDir: /var/lib/kubelet/volumeplugins
# A lost node is noticed after 8 s (see --node-monitor-grace-period).
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 4
`, s.IP(node), s.HubIP(), evictionMiB, m.MilliCPU-share.MilliCPU, max(m.MiB-share.MiB-evictionMiB, 0))
}

func (s Settings) proxy(node string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: /rf/cfg/kube-proxy.kubeconfig}
hostnameOverride: %s
clusterCIDR: %s
oomScoreAdj: 0
# 0 leaves the machine's connection tracking as it is.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
# Every service is written when it changes. After the second full sync, which is hourly, the map of services was found empty.
nftables: {syncPeriod: 8760h}
`, node, s.PodNet)
}

// PauseImage is the image of every pod's sandbox.
const PauseImage = "docker.io/ringfleet/pause:1"

func containerd() string {
	return strings.NewReplacer("CNIPLUGINS", CNIPlugins, "PAUSE", PauseImage).Replace(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE a lower score is refused, and runc ends with an error about its pipe.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["CNIPLUGINS"]
    conf_dir = "/rf/cfg/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "PAUSE"
`)
}

// cni: addresses are recorded in /run, so that they are free again once the node is lost.
func (s Settings) cni(node string) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "p2p",
  "plugins": [
    {"type": "ptp", "ipMasq": false,
     "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, s.Pods(node))
}

// Kubeconfig is a client's file: the API server, whom to trust, who the client is. The three are base64.
func (s Settings) Kubeconfig(ca, cert, key string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: %[1]q, cluster: {server: %[2]q, certificate-authority-data: %[3]s}}]
users: [{name: %[1]q, user: {client-certificate-data: %[4]s, client-key-data: %[5]s}}]
contexts: [{name: %[1]q, context: {cluster: %[1]q, user: %[1]q}}]
current-context: %[1]q
`, s.Name, s.Server(), ca, cert, key)
}
