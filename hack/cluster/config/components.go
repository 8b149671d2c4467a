package config

import (
	"fmt"
	"strings"
)

// Folders inside a member's own root.
const (
	KubeBin       = "/rf/kube"       // kube-apiserver, kubelet, …: symlinks to one binary
	ContainerdBin = "/rf/containerd" // containerd, its shim, ctr
	CoreDNSBin    = "/rf/coredns"    // coredns
	Configs       = "/rf/cfg"        // this member's files, read-only
	Images        = "/rf/images"     // image archives, read-only
	Host          = "/rf/host"       // this member's folder of the state, writable
	Logs          = "/var/log"       // one file a component
)

// CNIPlugins is where Debian's containernetworking-plugins are.
const CNIPlugins = "/usr/lib/cni"

// Path is PATH of everything inside a member.
const Path = ContainerdBin + ":" + KubeBin + ":" + CoreDNSBin + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"

// Component is one process of a member, kept running by its init.
type Component struct {
	Name    string   `json:"name"`    // also the name of its log
	Command []string `json:"command"` // looked up on Path
	// Ready is a command that succeeds once the component can be used; the next one starts after that.
	// Empty: the next one starts at once.
	Ready []string `json:"ready,omitempty"`
	// Images: the archives of folder Images are imported once this component is ready.
	Images bool `json:"images,omitempty"`
}

// Components are the processes of a member, in the order of their start.
func (s Settings) Components(member string) []Component {
	if member == Hub {
		return s.hubComponents()
	}
	return s.nodeComponents(member)
}

func (s Settings) hubComponents() []Component {
	client := func(name string) []string {
		file := Configs + "/" + name + ".kubeconfig"
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
			"--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir=/run/" + name}
	}
	kcm := append([]string{"kube-controller-manager"}, client("kube-controller-manager")...)
	kcm = append(kcm, strings.Fields(`--use-service-account-credentials
		--service-account-private-key-file=/rf/cfg/sa.key --root-ca-file=/rf/cfg/ca.crt
		--cluster-signing-cert-file=/rf/cfg/ca.crt --cluster-signing-key-file=/rf/cfg/ca.key
		--kube-api-qps=300 --kube-api-burst=600
		--node-monitor-grace-period=8s --node-monitor-period=1s --node-eviction-rate=10`)...)
	return []Component{
		{Name: "etcd", Command: append([]string{"etcd"}, etcdArgs()...)},
		{Name: "kube-apiserver", Command: append([]string{"kube-apiserver"}, s.apiserverArgs()...),
			Ready: []string{"kubectl", "--kubeconfig=" + Configs + "/admin.kubeconfig", "get", "--raw", "/readyz"}},
		{Name: "kube-controller-manager", Command: kcm},
		{Name: "kube-scheduler", Command: append([]string{"kube-scheduler"}, client("kube-scheduler")...)},
		{Name: "coredns", Command: []string{"coredns", "-conf", Configs + "/Corefile"}},
	}
}

// etcdArgs: without fsync, since the cluster is not worth more than its machine's uptime.
func etcdArgs() []string {
	return strings.Fields(`--data-dir=/var/lib/etcd --listen-client-urls=http://127.0.0.1:2379
		--advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380
		--initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=default=http://127.0.0.1:2380
		--unsafe-no-fsync --log-level=warn`)
}

// apiserverArgs: aggregator routing lets webhooks reach pods from the hub; InternalIP lets logs and exec
// reach kubelets, whose names nobody resolves; the front proxy keeps the other components' logs quiet; one
// second of toleration moves the pods of a lost node at once.
func (s Settings) apiserverArgs() []string {
	return strings.Fields(fmt.Sprintf(`--etcd-servers=http://127.0.0.1:2379 --secure-port=%d --advertise-address=%s
		--service-cluster-ip-range=%s --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
		--allow-privileged=true --enable-aggregator-routing=true --kubelet-preferred-address-types=InternalIP
		--default-unreachable-toleration-seconds=1
		--client-ca-file=/rf/cfg/ca.crt --cert-dir=/run/kube-apiserver
		--tls-cert-file=/rf/cfg/kube-apiserver.crt --tls-private-key-file=/rf/cfg/kube-apiserver.key
		--kubelet-certificate-authority=/rf/cfg/ca.crt
		--kubelet-client-certificate=/rf/cfg/kubelet-client.crt --kubelet-client-key=/rf/cfg/kubelet-client.key
		--service-account-issuer=https://kubernetes.default.svc
		--service-account-key-file=/rf/cfg/sa.pub --service-account-signing-key-file=/rf/cfg/sa.key
		--requestheader-client-ca-file=/rf/cfg/ca.crt --requestheader-allowed-names=front-proxy
		--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
		--requestheader-extra-headers-prefix=X-Remote-Extra-
		--proxy-client-cert-file=/rf/cfg/front-proxy.crt --proxy-client-key-file=/rf/cfg/front-proxy.key`,
		APIPort, s.HubIP(), s.ServiceNet))
}

func (s Settings) nodeComponents(node string) []Component {
	return []Component{
		{Name: "containerd", Command: []string{"containerd", "--config=" + Configs + "/containerd.toml"},
			Ready: []string{"ctr", "version"}, Images: true},
		{Name: "kubelet", Command: []string{"kubelet", "--config=" + Configs + "/kubelet.yaml",
			"--kubeconfig=" + Configs + "/kubelet.kubeconfig", "--hostname-override=" + node,
			"--node-ip=" + s.IP(node).String(), "--cert-dir=/run/kubelet"}},
		{Name: "kube-proxy", Command: []string{"kube-proxy", "--config=" + Configs + "/kube-proxy.yaml"}},
	}
}

// ImportCommand imports an archive of folder Images into containerd under the names that it carries.
func ImportCommand(archive string) []string {
	return []string{"ctr", "--namespace=k8s.io", "images", "import", Images + "/" + archive}
}

// Sysctls are the global kernel settings that a kubelet insists on. A node shows them over read-only files
// of its own, so that the machine's stay as they are.
func Sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

// ListImagesCommand lists the names of a node's images, one a line.
func ListImagesCommand() []string {
	return []string{"ctr", "--namespace=k8s.io", "images", "list", "--quiet"}
}
