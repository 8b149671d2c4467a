package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func TestTheSetSaysWhatIs(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	model := &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "m"},
		Status: v1alpha1.InferenceModelStatus{
			Replicas: new(int32(9)), InRingReplicas: new(int32(3)),
			Workers: []v1alpha1.WorkerProgress{
				{Name: "w1", Stage: v1alpha1.StageLoading}, {Name: "w2", Stage: v1alpha1.StageLoading}, {Name: "w3", Stage: v1alpha1.StageDraining},
			},
		},
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(model).Build()
	now := time.Unix(1000, 0)
	set := New(api, func() int { return 2 }, clocktesting.NewFakePassiveClock(now))
	set.Expires("a", identity.Worker, now.Add(time.Hour))
	set.Expires("b", identity.Worker, now.Add(time.Minute))
	set.Expires("c", identity.Worker, now.Add(time.Second))
	set.Expires("c", identity.Worker, time.Time{})

	counted := set.CountPods(api)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "w"}}
	if err := counted.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := counted.Create(t.Context(), pod.DeepCopy()); err == nil {
		t.Fatal("the pod was created twice")
	}
	if err := counted.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	if err := counted.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP ringfleet_manager_certificate_seconds_to_expiry Seconds until the certificate that ends first ends, over all namespaces.
# TYPE ringfleet_manager_certificate_seconds_to_expiry gauge
ringfleet_manager_certificate_seconds_to_expiry{role="worker"} 60
# HELP ringfleet_manager_routers_silent Ready routers that have not answered for ten seconds and are left out.
# TYPE ringfleet_manager_routers_silent gauge
ringfleet_manager_routers_silent 2
# HELP ringfleet_manager_worker_pods_created_total Worker pods that this manager has created.
# TYPE ringfleet_manager_worker_pods_created_total counter
ringfleet_manager_worker_pods_created_total 1
# HELP ringfleet_manager_worker_pods_deleted_total Worker pods that this manager has deleted.
# TYPE ringfleet_manager_worker_pods_deleted_total counter
ringfleet_manager_worker_pods_deleted_total 1
# HELP ringfleet_manager_workers Workers by the stage that the models' statuses name.
# TYPE ringfleet_manager_workers gauge
ringfleet_manager_workers{stage="Draining"} 1
ringfleet_manager_workers{stage="Failed"} 0
ringfleet_manager_workers{stage="Fetching"} 0
ringfleet_manager_workers{stage="InRing"} 3
ringfleet_manager_workers{stage="Loaded"} 0
ringfleet_manager_workers{stage="Loading"} 2
ringfleet_manager_workers{stage="Pending"} 0
ringfleet_manager_workers{stage="Starting"} 0
ringfleet_manager_workers{stage="Unlisted"} 4
`
	if err := testutil.CollectAndCompare(set, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
