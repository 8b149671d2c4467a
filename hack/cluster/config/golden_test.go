package config_test

import (
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/golden"
)

// settings are those of the flags' defaults, with change applied.
func settings(t *testing.T, args ...string) config.Settings {
	t.Helper()
	s, err := parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatComponentsAreStartedWith(t *testing.T) {
	s := settings(t)
	for _, member := range []string{config.Hub, "n2"} {
		var b strings.Builder
		for _, c := range s.Components(member) {
			b.WriteString("# " + c.Name)
			if len(c.Ready) > 0 {
				b.WriteString(", ready when: " + strings.Join(c.Ready, " "))
			}
			b.WriteString("\n" + strings.Join(c.Command, "\n    ") + "\n\n")
		}
		golden.Check(t, "components-"+member+".txt", b.String())
	}
}

func TestTheFilesOfANode(t *testing.T) {
	s := settings(t)
	var b strings.Builder
	files := s.NodeFiles("n2", config.Machine{MilliCPU: 2000, MiB: 24000})
	for _, name := range []string{"cni/10-p2p.conflist", "containerd.toml", "kube-proxy.yaml", "kubelet.yaml"} {
		b.WriteString("=== " + name + "\n" + files[name])
		delete(files, name)
	}
	for name := range files {
		t.Errorf("file %s is in no golden file", name)
	}
	b.WriteString("=== a kubeconfig\n" + s.Kubeconfig("Y2E=", "Y2VydA==", "a2V5"))
	golden.Check(t, "files-n2.txt", b.String())
}

func TestTheFilesOfTheHub(t *testing.T) {
	files := settings(t).HubFiles()
	if len(files) != 1 {
		t.Errorf("got %d files, want the Corefile", len(files))
	}
	golden.Check(t, "files-hub.txt", "=== Corefile\n"+files["Corefile"])
}

func TestTheNetworkOfACluster(t *testing.T) {
	s := settings(t, "--name=other", "--net=10.231.0.0/24", "--podnet=10.232.0.0/16", "--svcnet=10.233.0.0/16")
	var b strings.Builder
	part := func(where string, lines []string) {
		b.WriteString("# " + where + "\n" + strings.Join(lines, "\n") + "\n\n")
	}
	part("in the hub", s.HubLinks())
	part("on the host", s.HostLinks(4711))
	part("in the hub, to join the host", config.HostJoin())
	part("in the hub, to join n2", s.NodeJoin("n2", 4712))
	part("in n2", s.NodeLinks("n2"))
	part("in n2, to the pods of others", s.PodRoutes("n2"))
	part("in the hub, to pods", s.PodRoutes(config.Hub))
	part("on the host, Services through n1", s.HostRoutes("n1"))
	golden.Check(t, "network.txt", b.String())
}
