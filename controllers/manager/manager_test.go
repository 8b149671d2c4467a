package manager

import (
	"flag"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/controllers/fleetclient"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
)

func TestOptionsAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"the defaults and a namespace":      {[]string{"--namespace=x"}, ""},
		"no namespace":                      {nil, "--namespace is empty"},
		"no worker image":                   {[]string{"--namespace=x", "--worker-image="}, "--worker-image is empty"},
		"no worker image for GPUs":          {[]string{"--namespace=x", "--worker-cuda-image="}, "--worker-cuda-image is empty"},
		"a pull policy that does not exist": {[]string{"--namespace=x", "--image-pull-policy=Sometimes"}, `"Sometimes": it must be Always, IfNotPresent or Never`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "")
			o := Options{Version: "1.2"}
			set := flag.NewFlagSet(name, flag.ContinueOnError)
			o.Bind(set)
			if err := set.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if c.want == "" && (err != nil || o.RouterImage != "docker.io/ringfleet/router:1.2" || o.WorkerCUDAImage != "docker.io/ringfleet/worker-cuda:1.2") {
				t.Errorf("refused: %v; router image %s, worker image for GPUs %s", err, o.RouterImage, o.WorkerCUDAImage)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestTheNamespaceComesFromTheEnvironment(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "home")
	var o Options
	o.Bind(flag.NewFlagSet("x", flag.ContinueOnError))
	if o.Namespace != "home" {
		t.Errorf("namespace %q", o.Namespace)
	}
}

func TestCachesKeepOnlyTheManagersOwnApplyEntry(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: apply}, {Manager: "ringfleet-manager", Operation: update},
		{Manager: "ringfleet-manager", Operation: apply, Subresource: "status"}, {Manager: "ringfleet-manager", Operation: apply, APIVersion: "v1"},
	}}}
	if _, err := keepOwnFields(service); err != nil {
		t.Fatal(err)
	}
	if left := service.ManagedFields; len(left) != 1 || left[0].APIVersion != "v1" {
		t.Errorf("kept %v", left)
	}
	if got, err := keepOwnFields("a tombstone"); got != "a tombstone" || err != nil {
		t.Errorf("something without metadata became %v (%v)", got, err)
	}
}

func TestARoutersAnswerIsTranslated(t *testing.T) {
	v := ofRouter(fleetclient.Router{Pod: "r", Status: &routerv1.StatusResponse{Models: []*routerv1.ModelStatus{{Workers: []*routerv1.WorkerStatus{
		{PodUid: "a", InRing: true, InFlight: 2, ReportAgeMilliseconds: 1500, Report: &workerv1.Report{
			InstanceId: "i", ModelLoaded: true, Stage: workerv1.Stage_STAGE_LOADED, Load: &workerv1.Load{Running: 3, Waiting: 1}}},
		{PodUid: "b", LastError: "refused"},
		{PodUid: "c", Report: &workerv1.Report{Stage: workerv1.Stage_STAGE_FETCHING, ProgressPercent: new(uint32(40))}},
	}}}}})
	a, b, c := v.Workers["a"], v.Workers["b"], v.Workers["c"]
	if !v.Answered || !a.InRing || !a.Loaded || a.Instance != "i" || a.InFlight != 2 || a.Running != 4 || a.Age != 1500*time.Millisecond || a.Stage != v1alpha1.StageLoaded {
		t.Errorf("worker a is %+v", a)
	}
	if b.InRing || b.Instance != "" || b.Stage != "" || b.LastError != "refused" {
		t.Errorf("worker b, which has never reported, is %+v", b)
	}
	if c.Stage != v1alpha1.StageFetching || c.Percent == nil || *c.Percent != 40 {
		t.Errorf("worker c is %+v", c)
	}
	if silent := ofRouter(fleetclient.Router{Pod: "r", Silence: time.Second, Error: "late"}); silent.Answered || silent.Error != "late" {
		t.Errorf("a silent router is %+v", silent)
	}
}

func TestOnlyPodsThatCanAnswerAreAsked(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name, component string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{v1alpha1.LabelComponent: component}},
			Status: corev1.PodStatus{
				PodIP:             "fd00::1",
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
			},
		}
		change(p)
		return p
	}
	same := func(*corev1.Pod) {}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("router", desired.Component, same),
		pod("router-not-ready", desired.Component, func(p *corev1.Pod) { p.Status.Conditions = nil }),
		pod("router-without-address", desired.Component, func(p *corev1.Pod) { p.Status.PodIP = "" }),
		pod("router-going", desired.Component, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x/y"}
		}),
		pod("worker-loading", "worker", func(p *corev1.Pod) { p.Status.Conditions = nil }),
		pod("worker-starting", "worker", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }),
	).Build()
	found, err := findPods(reader)(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Routers) != 1 || found.Routers[0].Name != "router" || found.Routers[0].Address != "[fd00::1]:9443" {
		t.Errorf("routers %+v", found.Routers)
	}
	if len(found.Workers) != 1 || found.Workers[0].Name != "worker-loading" {
		t.Errorf("workers %+v", found.Workers)
	}
}
