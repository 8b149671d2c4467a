//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// pods are two restricted servers, one a node, behind one Service; the first mounts an image as a volume.
const pods = `
apiVersion: v1
kind: Namespace
metadata: {name: e2e, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: e2e}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
%s---
%s`

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: e2e, labels: {app: %[3]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: echo
    image: docker.io/ringfleet/echo:e2e
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: weights, mountPath: /weights}]
  volumes: [{name: weights, image: {reference: docker.io/ringfleet/weights:e2e, pullPolicy: IfNotPresent}}]
`

func TestAClusterWorksAndLeavesTheMachineAsItWas(t *testing.T) {
	c := newTool(t, "a,b")
	before := host(t)
	c.run("up", "--image", echoImage(t))
	c.run("load", image(t, "docker.io/ringfleet/weights:e2e", "/model.gguf", []byte("weights")))
	c.run("up")

	eventually(t, "the namespace's service account", func() error {
		c.kube(strings.Split(fmt.Sprintf(pods, "", ""), "---")[0], "apply", "-f", "-")
		if got := c.kube("", "-n", "e2e", "get", "serviceaccount", "-o", "name"); !strings.Contains(got, "default") {
			return errors.New("not there")
		}
		return nil
	})
	c.kube(fmt.Sprintf(pods, fmt.Sprintf(pod, "one", "a", "client"), fmt.Sprintf(pod, "two", "b", "echo")), "apply", "-f", "-")
	c.kube("", "-n", "e2e", "wait", "--for=condition=Ready", "pod/one", "pod/two", "--timeout=60s")
	ip := func(kind, name, field string) string {
		return c.kube("", "-n", "e2e", "get", kind, name, "-o", "jsonpath={"+field+"}")
	}
	one, two, vip := ip("pod", "one", ".status.podIP"), ip("pod", "two", ".status.podIP"), ip("service", "echo", ".spec.clusterIP")
	uid := ip("pod", "two", ".metadata.uid")

	t.Run("the host reaches pods and Services", func(t *testing.T) {
		answers(t, "http://"+one+":8080/", "one")
		answers(t, "http://"+two+":8080/", "two")
		answers(t, "http://"+vip+"/", "two")
	})
	t.Run("a pod reaches a pod of another node, directly and through a Service", func(t *testing.T) {
		answers(t, "http://"+one+":8080/get?url=http://"+two+":8080/", "two")
		answers(t, "http://"+one+":8080/get?url=http://"+vip+"/", "two")
	})
	t.Run("a pod finds a Service by its name", func(t *testing.T) {
		for _, name := range []string{"echo", "echo.e2e", "echo.e2e.svc.cluster.local"} {
			answers(t, "http://"+one+":8080/get?url=http://"+name+"/", "two")
		}
	})
	t.Run("an image is a volume", func(t *testing.T) {
		answers(t, "http://"+one+":8080/file?path=/weights/model.gguf", "weights")
	})
	t.Run("exec, logs and port-forward work", func(t *testing.T) {
		if got := c.kube("", "-n", "e2e", "exec", "one", "--", "/echo", "get", "http://127.0.0.1:8080/"); got != "one" {
			t.Errorf("exec: got %q", got)
		}
		if got := c.kube("", "-n", "e2e", "logs", "two"); got != "serving\n" {
			t.Errorf("logs: got %q", got)
		}
		c.forwards(t)
	})
	t.Run("a node shows its share of the machine", func(t *testing.T) {
		cpu := c.kube("", "get", "node", "a", "-o", "jsonpath={.status.capacity.cpu} {.status.allocatable.cpu}")
		if f := strings.Fields(cpu); len(f) != 2 || f[0] == f[1] {
			t.Errorf("capacity and allocatable CPU: got %q", cpu)
		}
	})
	t.Run("exec of the tool is inside the node", func(t *testing.T) {
		if got := c.run("exec", "b", "hostname"); got != "b\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a lost node comes back with its images, and a new node has them too", func(t *testing.T) {
		c.run("node", "kill", "a")
		c.kube("", "wait", "--for=condition=Ready=Unknown", "node/a", "--timeout=60s")
		if got := c.kube("", "get", "node", "b", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"); got != "True" {
			t.Errorf("the other node: Ready=%s", got)
		}
		c.run("node", "restart", "a")
		c.run("node", "via", "b")
		answers(t, "http://"+vip+"/", "two")
		if got := ip("pod", "two", ".metadata.uid"); got != uid {
			t.Errorf("the pod of the other node was replaced: %s became %s", uid, got)
		}
		c.env = append(c.env, "CLUSTER_NODES=a,b,c")
		c.run("up")
		c.kube("", "wait", "--for=condition=Ready", "node/a", "node/b", "node/c", "--timeout=60s")
		for _, n := range []string{"a", "c"} {
			if got := c.run("exec", n, "ctr", "--namespace=k8s.io", "images", "list", "--quiet"); !strings.Contains(got, "docker.io/ringfleet/weights:e2e") {
				t.Errorf("images of %s: %s", n, got)
			}
		}
	})
	t.Run("a node is cut off and joined again", func(t *testing.T) {
		c.run("node", "partition", "b")
		c.kube("", "wait", "--for=condition=Ready=Unknown", "node/b", "--timeout=60s")
		if got := c.run("status"); !strings.Contains(got, "cut off") {
			t.Errorf("status: %s", got)
		}
		c.run("node", "heal", "b")
		c.kube("", "wait", "--for=condition=Ready", "node/b", "--timeout=60s")
	})
	t.Run("the control plane is lost and comes back", func(t *testing.T) {
		c.run("node", "kill", "hub")
		c.run("up")
		c.kube("", "wait", "--for=condition=Ready", "node/a", "node/b", "node/c", "--timeout=60s")
	})

	c.run("down")
	unchanged(t, before)
	if _, err := os.Stat(c.state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state folder: %v", err)
	}
	c.run("down")
}

func TestAnUpThatCannotWorkNamesTheComponentAndItsLog(t *testing.T) {
	c := newTool(t, "a")
	c.run("up")
	c.run("node", "kill", "hub")
	data := filepath.Join(c.state, "members/hub/var/lib/etcd/member/snap/db")
	if err := os.WriteFile(data, []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.try("up")
	if err == nil {
		t.Fatal("up came to an end")
	}
	for _, want := range []string{"hub: component etcd ended", filepath.Join(c.state, "members/hub/var/log/etcd.log")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

// forwards asserts that kubectl port-forward carries a request.
func (c *tool) forwards(t *testing.T) {
	t.Helper()
	cmd := exec.Command(c.kubectl, "--kubeconfig="+filepath.Join(c.state, "kubeconfig"), "-n", "e2e", "port-forward", "pod/two", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	answers(t, "http://"+address+"/", "two")
}

// Each point is a file that appears on the way up.
var points = map[string]string{
	"before anything was started":                 "settings.json",
	"while the hub starts":                        "members/hub/pid.json",
	"when the hub has moved into its root":        "members/hub/status.json",
	"while a node starts":                         "members/a/pid.json",
	"when a node has started its first component": "members/a/var/log/containerd.log",
	"when a kubelet runs":                         "members/a/var/log/kubelet.log",
}

func TestAnUpThatWasKilledIsSurvived(t *testing.T) {
	c := newTool(t, "a")
	before := host(t)
	for name, file := range points {
		t.Run("killed "+name+", down leaves nothing", func(t *testing.T) {
			c.killAt(t, "up", filepath.Join(c.state, file), true)
			c.run("down")
			unchanged(t, before)
		})
	}
	t.Run("killed three times, the next up works, and down leaves nothing", func(t *testing.T) {
		for _, file := range []string{"members/hub/pid.json", "members/hub/status.json", "members/a/pid.json"} {
			c.killAt(t, "up", filepath.Join(c.state, file), true)
		}
		c.run("up")
		if got := c.kube("", "get", "node", "a", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"); got != "True" {
			t.Errorf("node a: Ready=%s", got)
		}
		c.run("down")
		unchanged(t, before)
	})
}

func TestADownThatWasKilledIsSurvived(t *testing.T) {
	c := newTool(t, "a")
	before := host(t)
	for name, file := range map[string]string{
		"when the control plane is gone":      "/sys/fs/cgroup/memory/rf-e2e/hub",
		"when the link to the host is gone":   "/sys/class/net/rf-rf-e2e",
		"when the state folder was put aside": c.state,
	} {
		t.Run("killed "+name+", the next up works, and down leaves nothing", func(t *testing.T) {
			c.run("up")
			c.killAt(t, "down", file, false)
			c.run("up")
			if got := c.kube("", "get", "node", "a", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"); got != "True" {
				t.Errorf("node a: Ready=%s", got)
			}
			c.killAt(t, "down", file, false)
			c.run("down")
			unchanged(t, before)
			for _, f := range []string{c.state, c.state + ".gone"} {
				if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %v", f, err)
				}
			}
		})
	}
}

// killAt starts a command and kills it by SIGKILL as soon as a file has come, or gone.
func (c *tool) killAt(t *testing.T, command, file string, come bool) {
	t.Helper()
	cmd := c.command(command)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, command+" on its way", func() error {
		if _, err := os.Stat(file); (err == nil) != come {
			return fmt.Errorf("%s: exists is %v", file, !come)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}
