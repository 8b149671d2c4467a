package workerpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// plain are n nodes without a GPU.
func plain(n int) []node { return make([]node, n) }

// with is a node with GPUs of a product, and n of a resource.
func with(product, resource string, n int64) node {
	return node{product: product, offers: map[string]int64{resource: n}}
}

func TestAPoolSaysWhoUsesItAndWhetherANodeCould(t *testing.T) {
	const h100, gpu, mig = "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
	onGPUs := func(product, resource string) v1alpha1.WorkerPoolSpec {
		return v1alpha1.WorkerPoolSpec{Accelerator: v1alpha1.Accelerator{Kind: v1alpha1.AcceleratorNvidiaGPU, Product: product, ResourceName: resource}}
	}
	selecting := v1alpha1.WorkerPoolSpec{NodeSelector: map[string]string{"gpu": "yes", "a": "b"}}
	for name, c := range map[string]struct {
		spec    v1alpha1.WorkerPoolSpec
		seen    observed
		status  metav1.ConditionStatus
		reason  v1alpha1.Reason
		message string
	}{
		"in use": {v1alpha1.WorkerPoolSpec{}, observed{models: 1, workers: 2, nodes: plain(3)}, metav1.ConditionTrue, v1alpha1.ReasonInUse,
			"1 model and 2 workers on 3 matching nodes"},
		"unused": {v1alpha1.WorkerPoolSpec{}, observed{nodes: plain(1)}, metav1.ConditionTrue, v1alpha1.ReasonUnused, "no model refers to the pool"},
		"no node matches": {selecting, observed{models: 1}, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode,
			"no node has the labels a=b,gpu=yes of spec.nodeSelector; label a node or change the selector"},
		"a cluster without nodes": {onGPUs("", ""), observed{}, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode, "the cluster has no node"},
		"GPUs are there": {onGPUs(h100, ""), observed{models: 1, nodes: []node{with(h100, gpu, 8), with(h100, gpu, 4), with("Tesla-T4", gpu, 1)}},
			metav1.ConditionTrue, v1alpha1.ReasonInUse, "1 model and 0 workers on 3 matching nodes, which offer 12 nvidia.com/gpu"},
		"no device plugin": {onGPUs("", ""), observed{models: 1, nodes: plain(2)}, metav1.ConditionFalse, v1alpha1.ReasonNoAccelerator,
			"of 2 matching nodes none offers nvidia.com/gpu: install NVIDIA's device plugin there, or look into its log"},
		"another product": {onGPUs(h100, ""), observed{nodes: []node{with("Tesla-T4", gpu, 1), with("NVIDIA-L4", gpu, 1), {}}}, metav1.ConditionFalse,
			v1alpha1.ReasonNoAccelerator, "of 3 matching nodes none has the label nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 of " +
				"spec.accelerator.product: they have NVIDIA-L4, Tesla-T4; name one of these"},
		"no feature discovery": {onGPUs(h100, ""), observed{nodes: []node{with("", gpu, 1)}}, metav1.ConditionFalse, v1alpha1.ReasonNoAccelerator,
			"of 1 matching node none has the label nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 of spec.accelerator.product: " +
				"none has that label; install NVIDIA's GPU feature discovery, which sets it, or leave the product out"},
		"slices in place of whole GPUs": {onGPUs(h100, ""), observed{nodes: []node{with(h100, mig, 2), with("Tesla-T4", gpu, 1)}}, metav1.ConditionFalse,
			v1alpha1.ReasonNoAccelerator, "of 1 node with NVIDIA-H100-80GB-HBM3 none offers nvidia.com/gpu: they offer nvidia.com/mig-3g.40gb; " +
				"name one of these in spec.accelerator.resourceName"},
		"slices, as they are asked for": {onGPUs("", mig), observed{models: 1, nodes: []node{with(h100, mig, 2)}}, metav1.ConditionTrue,
			v1alpha1.ReasonInUse, "1 model and 0 workers on 1 matching node, which offer 2 nvidia.com/mig-3g.40gb"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: c.spec}
			judge(pool, c.seen, time.Unix(1000, 0))
			got := pool.Status.Conditions[0]
			if got.Status != c.status || got.Reason != string(c.reason) || got.Message != c.message || got.ObservedGeneration != 7 {
				t.Errorf("Ready is %+v", got)
			}
			if *pool.Status.Models != c.seen.models || *pool.Status.Workers != c.seen.workers {
				t.Errorf("%d models and %d workers", *pool.Status.Models, *pool.Status.Workers)
			}
		})
	}
}

// aNode of a cluster, with much that no pool is judged by.
func aNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{labelProduct: "Tesla-T4"},
			Annotations: map[string]string{"long": "text"}},
		Spec: corev1.NodeSpec{ProviderID: "x"},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("2"), "nvidia.com/mig-1g.5gb": {}},
			Images:      []corev1.ContainerImage{{SizeBytes: 1}},
		},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func TestANodeKeptInTheCacheIsJudgedAsTheWholeOne(t *testing.T) {
	kept, err := TrimNode(aNode())
	if err != nil {
		t.Fatal(err)
	}
	trimmed := kept.(*corev1.Node)
	if trimmed.Annotations != nil || trimmed.Spec.ProviderID != "" || trimmed.Status.Images != nil {
		t.Errorf("it is kept as %+v", trimmed)
	}
	if trimmed.Name != "n" || trimmed.UID != "u" || trimmed.ResourceVersion != "1" {
		t.Errorf("it is not known by %+v", trimmed.ObjectMeta)
	}
	got := observeNode(trimmed)
	if got.product != "Tesla-T4" || len(got.offers) != 1 || got.offers["nvidia.com/gpu"] != 2 {
		t.Errorf("it counts as %+v", got)
	}
	if o, err := TrimNode("a tombstone"); o != "a tombstone" || err != nil {
		t.Errorf("what is no node becomes %v (%v)", o, err)
	}
}

func TestOnlyWhatPoolsAreJudgedByMakesANodeNews(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		news   bool
	}{
		"a heartbeat":       {func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		"less memory":       {func(n *corev1.Node) { n.Status.Allocatable["memory"] = resource.MustParse("1Gi") }, false},
		"another label":     {func(n *corev1.Node) { n.Labels["a"] = "b" }, true},
		"a GPU less":        {func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1") }, true},
		"slices in its way": {func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/mig-1g.5gb"] = resource.MustParse("7") }, true},
	} {
		if got := nodeChanges.Update(event.UpdateEvent{ObjectOld: aNode(), ObjectNew: aNode(c.change)}); got != c.news {
			t.Errorf("%s: news %v, want %v", name, got, c.news)
		}
	}
}
