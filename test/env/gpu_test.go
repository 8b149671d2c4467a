package env

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

var _ = Describe("a WorkerPool of GPUs", Ordered, func() {
	var in *installation
	var ns string
	BeforeAll(func() {
		in = install()
		ns = in.namespace()
		Expect(in.Create(ctx, &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "gpus", Namespace: ns}, Spec: v1alpha1.WorkerPoolSpec{
			Accelerator: v1alpha1.Accelerator{Kind: v1alpha1.AcceleratorNvidiaGPU, Product: "NVIDIA-L4"},
		}})).To(Succeed())
	})
	says := func(reason v1alpha1.Reason, message string) {
		EventuallyWithOffset(1, func(g Gomega) {
			pool := &v1alpha1.WorkerPool{}
			in.get(g, ns, "gpus", pool)
			ready := meta.FindStatusCondition(pool.Status.Conditions, string(v1alpha1.Ready))
			g.Expect(ready).NotTo(BeNil())
			g.Expect(ready.Reason + ": " + ready.Message).To(ContainSubstring(string(reason) + ": " + message))
		}).Should(Succeed())
	}

	It("follows what nodes have, from the first node to the device plugin", func() {
		says(v1alpha1.ReasonNoMatchingNode, "the cluster has no node")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		Expect(in.Create(ctx, node)).To(Succeed())
		says(v1alpha1.ReasonNoAccelerator, "of 1 matching node none has the label nvidia.com/gpu.product=NVIDIA-L4")
		node.Labels = map[string]string{"nvidia.com/gpu.product": "NVIDIA-L4"}
		Expect(in.Update(ctx, node)).To(Succeed())
		says(v1alpha1.ReasonNoAccelerator, "of 1 node with NVIDIA-L4 none offers nvidia.com/gpu")
		node.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
		node.Status.Allocatable = node.Status.Capacity
		Expect(in.Status().Update(ctx, node)).To(Succeed())
		says(v1alpha1.ReasonUnused, "no model refers to the pool")
	})

	It("has workers with GPUs, which the API server accepts", func() {
		m := aModel(ns, "tiny")
		m.Spec.PoolRef.Name = "gpus"
		m.Spec.Parallelism = &v1alpha1.Parallelism{Tensor: new(int32(2))}
		m.Spec.Adapters = []v1alpha1.Adapter{{Name: "support", URI: "hf://org/support"}}
		Expect(in.Create(ctx, m)).To(Succeed())
		var pods corev1.PodList
		Eventually(func(g Gomega) {
			g.Expect(in.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)})).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
		}).Should(Succeed())
		worker := pods.Items[0].Spec.Containers[0]
		Expect(worker.Image).To(Equal("ringfleet/worker-cuda:dev"))
		gpus := worker.Resources.Limits["nvidia.com/gpu"]
		Expect(gpus.Value()).To(Equal(int64(2)))
		Expect(pods.Items[0].Spec.NodeSelector).To(HaveKeyWithValue("nvidia.com/gpu.product", "NVIDIA-L4"))
		Eventually(func(g Gomega) {
			in.get(g, ns, "tiny", m)
			g.Expect(m.Status.ServedNames).To(Equal([]string{"tiny", "support"}))
		}).Should(Succeed())
		says(v1alpha1.ReasonInUse, "1 model and 1 worker on 1 matching node, which offer 4 nvidia.com/gpu")
	})
})
