// Package env tests the controllers against a real kube-apiserver: what only it decides (defaults, validation, patches,
// preconditions, server-side apply, watches) and what follows from it. There is no kubelet, scheduler or garbage
// collector: tests play their parts.
package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/autoscaler"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel"
)

// hangs is how long anything may take before it counts as never.
const hangs = 60 * time.Second

var (
	ctx    context.Context
	c      client.Client // reads and writes without a cache
	fleet  = &routers{views: map[string]inferencemodel.View{}}
	models *counting
)

func TestEnv(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd; `go run ./hack/cluster assets` prints one")
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(hangs)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "controllers against a kube-apiserver")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(GinkgoLogr)
	var stop context.CancelFunc
	ctx, stop = context.WithCancel(context.Background())
	Expect(v1alpha1.AddToScheme(scheme.Scheme)).To(Succeed())
	server := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "api", "crd")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := server.Start()
	Expect(err).NotTo(HaveOccurred())
	c, err = client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}},
	})
	Expect(err).NotTo(HaveOccurred())
	models = &counting{Client: mgr.GetClient(), made: map[string]int{}, gone: map[string][]uid{}}
	Expect((&inferencemodel.Reconciler{
		Client: models, Live: mgr.GetAPIReader(), Routers: fleet, Events: mgr.GetEventRecorder("ringfleet"),
		Clock: clock.RealClock{}, WorkerImage: "ringfleet/worker:dev", PullPolicy: corev1.PullIfNotPresent, Concurrency: 4,
	}).SetupWithManager(mgr)).To(Succeed())
	Expect((&autoscaler.Waker{
		Client: mgr.GetClient(), Routers: fleet, Events: mgr.GetEventRecorder("ringfleet"), Clock: clock.RealClock{},
	}).SetupWithManager(mgr)).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		stop()
		Expect(<-stopped).To(Succeed())
		Eventually(server.Stop).Should(Succeed())
	})
})

// namespace makes a namespace for one test.
func namespace() string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	ExpectWithOffset(1, c.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

// routers play the routers of all namespaces.
type routers struct {
	mu      sync.Mutex // guards the rest
	views   map[string]inferencemodel.View
	looks   int
	waiting map[string]uid // by namespace: the model that requests wait for
	told    int
}

// Wakes tells of the model that requests wait for, each time that it is looked for.
func (r *routers) Wakes(ctx context.Context, namespace string, again <-chan time.Time, tell func(string)) error {
	for {
		r.mu.Lock()
		waits, ok := r.waiting[namespace]
		r.told++
		r.mu.Unlock()
		if ok {
			tell(string(waits))
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait makes requests wait for a model.
func (r *routers) wait(namespace string, model uid) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[string]uid{}
	}
	r.waiting[namespace] = model
}

// Look returns what the test has said last.
func (r *routers) Look(_ context.Context, namespace string) (inferencemodel.View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	return r.views[namespace], nil
}

// say makes one Ready router of the namespace answer with these workers.
func (r *routers) say(namespace string, workers ...said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := inferencemodel.RouterView{Pod: "router-0", Answered: true, Workers: map[uid]inferencemodel.WorkerView{}}
	for _, w := range workers {
		one.Workers[w.pod.UID] = w.view
	}
	r.views[namespace] = inferencemodel.View{Routers: []inferencemodel.RouterView{one}}
}

func (r *routers) looked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

// said is one worker in a router's answer.
type said struct {
	pod  *corev1.Pod
	view inferencemodel.WorkerView
}

func inRing(pod *corev1.Pod, instance string) said {
	return said{pod, inferencemodel.WorkerView{Instance: instance, InRing: true, Loaded: true, Stage: v1alpha1.StageLoaded}}
}

func at(pod *corev1.Pod, stage v1alpha1.WorkerStage, reason, message string) said {
	return said{pod, inferencemodel.WorkerView{Instance: "i", Stage: stage, Reason: reason, Message: message}}
}

// fresh reads o again and returns it.
func fresh[T client.Object](g Gomega, o T) T {
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o
}

// condition is "STATUS REASON" of a model's condition.
func condition(m *v1alpha1.InferenceModel, t v1alpha1.ConditionType) string {
	for _, cond := range m.Status.Conditions {
		if cond.Type == string(t) {
			return fmt.Sprintf("%s %s", cond.Status, cond.Reason)
		}
	}
	return "absent"
}
