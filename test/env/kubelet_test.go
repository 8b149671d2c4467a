package env

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

type uid = types.UID

// counting counts the writes of a controller.
type counting struct {
	client.Client
	writes atomic.Int64

	mu   sync.Mutex // guards what follows
	made map[string]int
	gone map[string][]uid
}

// pods is how many pods were made in a namespace, and which were deleted there.
func (c *counting) pods(namespace string) (made int, gone []uid) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[namespace], slices.Clone(c.gone[namespace])
}

func (c *counting) note(o client.Object, made int, gone ...uid) {
	if _, ok := o.(*corev1.Pod); !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[o.GetNamespace()] += made
	c.gone[o.GetNamespace()] = append(c.gone[o.GetNamespace()], gone...)
}

func (c *counting) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.writes.Add(1)
	c.note(o, 1)
	return c.Client.Create(ctx, o, opts...)
}

func (c *counting) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.writes.Add(1)
	c.note(o, 0, o.GetUID())
	return c.Client.Delete(ctx, o, opts...)
}

func (c *counting) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	c.writes.Add(1)
	return c.Client.Apply(ctx, o, opts...)
}

func (c *counting) Status() client.SubResourceWriter { return countingStatus{c.Client.Status(), c} }

type countingStatus struct {
	client.SubResourceWriter
	c *counting
}

func (s countingStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	s.c.writes.Add(1)
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// workers are the pods of a model that are not being deleted.
func workers(g Gomega, m *v1alpha1.InferenceModel) []corev1.Pod {
	var live []corev1.Pod
	for _, p := range allPods(g, m) {
		if p.DeletionTimestamp == nil {
			live = append(live, p)
		}
	}
	return live
}

func allPods(g Gomega, m *v1alpha1.InferenceModel) []corev1.Pod {
	var list corev1.PodList
	g.Expect(c.List(ctx, &list, client.InNamespace(m.Namespace),
		client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)})).To(Succeed())
	return list.Items
}

// workersOnce waits for n workers and returns them.
func workersOnce(m *v1alpha1.InferenceModel, n int) []corev1.Pod {
	var found []corev1.Pod
	EventuallyWithOffset(1, func(g Gomega) {
		found = workers(g, m)
		g.Expect(found).To(HaveLen(n))
	}).Should(Succeed())
	return found
}

// run plays scheduler and kubelet: the pod runs on a node, in a container of that id.
func run(pod *corev1.Pod, container string) {
	if pod.Spec.NodeName == "" {
		ExpectWithOffset(1, c.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}})).To(Succeed())
	}
	status(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "worker", Image: "ringfleet/worker:dev", ContainerID: "containerd://" + container,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

// ready plays the kubelet once container and gate are ready.
func ready(pod *corev1.Pod) {
	status(pod, func(s *corev1.PodStatus) {
		s.ContainerStatuses[0].Ready = true
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	})
}

// status changes a pod's status from its newest version.
func status(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	EventuallyWithOffset(2, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		change(&pod.Status)
		return c.Status().Update(ctx, pod)
	}).Should(Succeed())
}

// gate is the in-ring gate of a pod and the instance it was set for.
func gate(pod *corev1.Pod) (corev1.ConditionStatus, string) {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == v1alpha1.GateInRing {
			return cond.Status, pod.Annotations[v1alpha1.AnnotationInRingInstance]
		}
	}
	return "", ""
}

// serve brings every worker of m into the ring, all the way, and returns them.
func serve(m *v1alpha1.InferenceModel, n int) []corev1.Pod {
	pods := workersOnce(m, n)
	var all []said
	for i := range pods {
		run(&pods[i], "c-"+pods[i].Name)
		all = append(all, inRing(&pods[i], "i-"+pods[i].Name))
	}
	fleet.say(m.Namespace, all...)
	for i := range pods {
		EventuallyWithOffset(1, func(g Gomega) {
			open, _ := gate(fresh(g, &pods[i]))
			g.Expect(open).To(Equal(corev1.ConditionTrue))
		}).Should(Succeed())
		ready(&pods[i])
	}
	return pods
}

// force plays the end of a pod's grace: it is gone.
func force(pod *corev1.Pod) {
	ExpectWithOffset(1, client.IgnoreNotFound(c.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
}
