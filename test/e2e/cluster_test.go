//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// hangs is how long anything may take before it counts as never.
const hangs = 60 * time.Second

// weights is the demo model's image.
const weights = "oci://docker.io/ringfleet/smollm2-135m-instruct:q4_1"

var (
	api  client.WithWatch
	kube kubernetes.Interface
)

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	code := m.Run()
	writeRecorded()
	os.Exit(code)
}

func connect() error {
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		return fmt.Errorf("KUBECONFIG is not set: run go run ./hack/demo e2e, which makes a cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	kube, err = kubernetes.NewForConfig(config)
	return err
}

// namespace makes a namespace that enforces Pod Security restricted, and removes it with everything in it in the end.
func namespace(t *testing.T, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			tell(t, name)
		}
		// Streams that a failed test left behind must not hold the pods.
		ctx := context.Background()
		_ = api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(name), client.GracePeriodSeconds(0))
		if err := api.Delete(ctx, ns); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
		eventually(t, "namespace "+name+" is gone", func(ctx context.Context) (bool, string, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{})
			return apierrors.IsNotFound(err), "still there", client.IgnoreNotFound(err)
		})
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
	start := time.Now()
	last := ""
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, hangs, true, func(ctx context.Context) (bool, error) {
		done, saw, err := look(ctx)
		last = saw
		return done, err
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
	return time.Since(start)
}

// model applies an InferenceModel of the demo's weights with changes.
func model(t *testing.T, ns, name string, changes ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	t.Helper()
	m := &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: v1alpha1.InferenceModelSpec{
			Replicas: ptr.To[int32](1), Weights: v1alpha1.Weights{URI: weights}, DrainTimeoutSeconds: ptr.To[int64](60),
		},
	}
	for _, change := range changes {
		change(m)
	}
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatalf("create model %s: %v", name, err)
	}
	return m
}

func replicas(n int32) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = &n }
}

// condition returns "True Serving: message" of a model as the manager has seen it, and whether the status is up to date.
func condition(m *v1alpha1.InferenceModel, t v1alpha1.ConditionType) (*metav1.Condition, string) {
	c := meta.FindStatusCondition(m.Status.Conditions, string(t))
	if c == nil || c.ObservedGeneration != m.Generation {
		return nil, "not judged yet"
	}
	return c, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// untilCondition waits for a condition of a model with a reason.
func untilCondition(t *testing.T, m *v1alpha1.InferenceModel, ct v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.Reason) string {
	t.Helper()
	message := ""
	eventually(t, fmt.Sprintf("%s of model %s is %s with reason %s", ct, m.Name, status, reason), func(ctx context.Context) (bool, string, error) {
		if err := api.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, "", err
		}
		c, saw := condition(m, ct)
		if c != nil {
			message = c.Message
		}
		return c != nil && c.Status == status && c.Reason == string(reason), saw, nil
	})
	return message
}

func untilReady(t *testing.T, m *v1alpha1.InferenceModel) {
	t.Helper()
	untilCondition(t, m, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonServing)
}

// workers returns the pods of a model that are not being deleted.
func workers(t *testing.T, m *v1alpha1.InferenceModel) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := api.List(t.Context(), &pods, client.InNamespace(m.Namespace), client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)}); err != nil {
		t.Fatal(err)
	}
	var live []corev1.Pod
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			live = append(live, p)
		}
	}
	return live
}

// logs returns what a pod's container has written.
func logs(t *testing.T, ns, pod string) string {
	t.Helper()
	stream, err := kube.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatalf("read the logs of %s: %v", pod, err)
	}
	defer stream.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, stream); err != nil {
		t.Fatalf("read the logs of %s: %v", pod, err)
	}
	return b.String()
}

// base returns the URL of the namespace's routers, once one is Ready.
func base(t *testing.T, ns string) string {
	t.Helper()
	url := ""
	eventually(t, "router default of "+ns+" has an address", func(ctx context.Context) (bool, string, error) {
		var r v1alpha1.InferenceRouter
		if err := api.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1alpha1.DefaultName}, &r); err != nil {
			return false, "no InferenceRouter", client.IgnoreNotFound(err)
		}
		url = fmt.Sprintf("http://%s:%d/v1", r.Status.ClusterIP, r.Spec.Service.Port)
		return r.Status.ClusterIP != "" && meta.IsStatusConditionTrue(r.Status.Conditions, string(v1alpha1.Ready)), fmt.Sprint(r.Status), nil
	})
	return url
}

// kill sends SIGKILL to the worker process of a pod, as an out-of-memory kill or a failed assertion would end it. Nodes
// are namespaces of this machine, so its processes are visible here.
func kill(t *testing.T, pod string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00POD_NAME="+pod+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/environ", &pid); err != nil {
			t.Fatal(err)
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatalf("kill the process of %s: %v", pod, err)
		}
		return
	}
	t.Fatalf("no process of pod %s on this machine", pod)
}
