//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// hangs is how long anything may take before it counts as never.
const hangs = cluster.Hangs

var (
	api client.WithWatch
	rig *cluster.Cluster
)

func TestMain(m *testing.M) {
	var err error
	if rig, err = cluster.Connect(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	api = rig.API
	code := m.Run()
	writeRecorded()
	os.Exit(code)
}

// namespace makes a namespace that enforces Pod Security restricted, and removes it with everything in it in the end.
func namespace(t *testing.T, name string) string {
	t.Helper()
	if err := rig.Namespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			tell(t, name)
		}
		if err := rig.Remove(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// tell prints what a person would look at after a failure.
func tell(t *testing.T, ns string) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "im,wp,ir,pods,svc", "-o", "wide"}, {"get", "im", "-o", "yaml"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"logs", "-l", "app.kubernetes.io/component=router", "--tail=40", "--prefix"},
		{"logs", "-l", "app.kubernetes.io/component=worker", "--tail=40", "--prefix"},
		{"-n", "ringfleet-system", "logs", "-l", "app.kubernetes.io/component=manager", "--tail=60"},
	} {
		out, _ := exec.Command("kubectl", append([]string{"-n", ns}, args...)...).CombinedOutput()
		t.Logf("$ kubectl -n %s %s\n%s", ns, strings.Join(args, " "), out)
	}
}

// eventually looks again and again until look says true; it fails with what look saw last when that hangs.
func eventually(t *testing.T, what string, look func(context.Context) (done bool, saw string, err error)) time.Duration {
	t.Helper()
	took, err := cluster.Until(context.Background(), what, look)
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// model applies an InferenceModel of the demo's weights with changes.
func model(t *testing.T, ns, name string, changes ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	t.Helper()
	m := cluster.Model(ns, name, changes...)
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatalf("create model %s: %v", name, err)
	}
	return m
}

func replicas(n int32) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = &n }
}

// untilCondition waits for a condition of a model with a reason.
func untilCondition(t *testing.T, m *v1alpha1.InferenceModel, ct v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.Reason) string {
	t.Helper()
	message, err := rig.UntilCondition(t.Context(), m, ct, status, reason)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func untilReady(t *testing.T, m *v1alpha1.InferenceModel) {
	t.Helper()
	if err := rig.UntilReady(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// workers returns the pods of a model that are not being deleted.
func workers(t *testing.T, m *v1alpha1.InferenceModel) []corev1.Pod {
	t.Helper()
	pods, err := rig.Workers(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// logs returns what a pod's container has written.
func logs(t *testing.T, ns, pod string) string {
	t.Helper()
	text, err := rig.Logs(t.Context(), ns, pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// base returns the URL of the namespace's routers, once one is Ready.
func base(t *testing.T, ns string) string {
	t.Helper()
	url, err := rig.URL(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// kill sends SIGKILL to the process of a model's worker, as an out-of-memory kill or a failed assertion would end it.
func kill(t *testing.T, m *v1alpha1.InferenceModel, worker string) {
	t.Helper()
	for _, p := range workers(t, m) {
		if p.Name != worker {
			continue
		}
		pid, err := cluster.Process(string(p.UID), "worker", nil)
		if err != nil || pid == 0 {
			t.Fatalf("find the process of %s on this machine: %v", worker, err)
		}
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if err != nil {
			t.Fatalf("kill the process of %s: %v", worker, err)
		}
		return
	}
	t.Fatalf("there is no worker %s", worker)
}
