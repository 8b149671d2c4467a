package env

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// smol makes a model of n workers in ns, with changes.
func smol(ns string, n int32, changes ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	m := &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Name: "smol", Namespace: ns},
		Spec: v1alpha1.InferenceModelSpec{
			Replicas: new(n),
			Weights:  v1alpha1.Weights{URI: "oci://example.com/smol:1"},
		},
	}
	for _, change := range changes {
		change(m)
	}
	ExpectWithOffset(1, c.Create(ctx, m)).To(Succeed())
	return m
}

// becomes waits until a condition of m is "STATUS REASON".
func becomes(m *v1alpha1.InferenceModel, t v1alpha1.ConditionType, want string) {
	EventuallyWithOffset(1, func(g Gomega) {
		g.Expect(condition(fresh(g, m), t)).To(Equal(want), "%+v", m.Status)
	}).Should(Succeed())
}

func change(m *v1alpha1.InferenceModel, how func(*v1alpha1.InferenceModel)) {
	EventuallyWithOffset(1, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		how(m)
		return c.Update(ctx, m)
	}).Should(Succeed())
}

var _ = Describe("an InferenceModel", func() {
	It("gets workers, a headless Service and the defaults of its namespace", func() {
		ns := namespace()
		m := smol(ns, 2)
		pods := workersOnce(m, 2)
		for _, p := range pods {
			Expect(metav1.IsControlledBy(&p, m)).To(BeTrue())
			Expect(p.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.Image.Reference", "example.com/smol:1")))
		}
		var services corev1.ServiceList
		Expect(c.List(ctx, &services, client.InNamespace(ns))).To(Succeed())
		Expect(services.Items).To(HaveLen(1))
		Expect(services.Items[0].Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		Expect(services.Items[0].Spec.PublishNotReadyAddresses).To(BeTrue())
		for _, o := range []client.Object{&v1alpha1.WorkerPool{}, &v1alpha1.InferenceRouter{}} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, o)).To(Succeed())
			Expect(o.GetLabels()).To(HaveKeyWithValue(v1alpha1.LabelCreatedFor, "true"))
		}
		var budgets policyv1.PodDisruptionBudgetList
		Eventually(func(g Gomega) {
			g.Expect(c.List(ctx, &budgets, client.InNamespace(ns))).To(Succeed())
			g.Expect(budgets.Items).To(HaveLen(1))
		}).Should(Succeed())
		Expect(metav1.IsControlledBy(&budgets.Items[0], m)).To(BeTrue())
		Expect(budgets.Items[0].Spec.MaxUnavailable.IntValue()).To(Equal(1))
		Expect(budgets.Items[0].Spec.Selector.MatchLabels).To(Equal(map[string]string{v1alpha1.LabelModelUID: string(m.UID)}))
		becomes(m, v1alpha1.Ready, "False WorkersStarting")
		Expect(m.Status.ServedNames).To(Equal([]string{"smol"}))
		Expect(m.Status.InRing).To(Equal("0/2"))
		Eventually(func(g Gomega) { g.Expect(fresh(g, m).Status.Workers).To(HaveLen(2)) }).Should(Succeed())
	})

	It("opens a worker's gate for an instance, and closes it when the container restarts", func() {
		m := smol(namespace(), 1)
		pod := &workersOnce(m, 1)[0]
		run(pod, "c1")
		fleet.say(m.Namespace, at(pod, v1alpha1.StageLoading, "", "tensors"))
		Eventually(func(g Gomega) {
			g.Expect(fresh(g, m).Status.Workers).To(HaveLen(1))
			g.Expect(m.Status.Workers[0].Stage).To(Equal(v1alpha1.StageLoading))
		}).Should(Succeed())
		open, _ := gate(fresh(Default, pod))
		Expect(open).NotTo(Equal(corev1.ConditionTrue))

		fleet.say(m.Namespace, inRing(pod, "a"))
		isOpenFor := func(instance string) {
			EventuallyWithOffset(1, func(g Gomega) {
				open, of := gate(fresh(g, pod))
				g.Expect(open).To(Equal(corev1.ConditionTrue))
				g.Expect(of).To(Equal(instance))
			}).Should(Succeed())
		}
		isOpenFor("a")
		ready(pod)
		becomes(m, v1alpha1.Ready, "True Serving")
		Expect(m.Status.InRing).To(Equal("1/1"))

		fleet.say(m.Namespace) // the router restarts and knows nobody
		status(pod, func(s *corev1.PodStatus) { s.Message = "look again" })
		becomes(m, v1alpha1.Ready, "False WorkersStarting")
		isOpenFor("a")

		run(pod, "c2")
		Eventually(func(g Gomega) {
			open, of := gate(fresh(g, pod))
			g.Expect(open).To(Equal(corev1.ConditionFalse))
			g.Expect(of).To(Equal("a"))
		}).Should(Succeed())
		fleet.say(m.Namespace, inRing(pod, "a")) // the router has not noticed yet
		looks := fleet.looked()
		Eventually(fleet.looked).Should(BeNumerically(">", looks+2))
		open, _ = gate(fresh(Default, pod))
		Expect(open).To(Equal(corev1.ConditionFalse))
		fleet.say(m.Namespace, inRing(pod, "b"))
		isOpenFor("b")
		Expect(workers(Default, m)).To(HaveLen(1))
	})

	It("replaces a worker that was deleted, and one that was evicted", func() {
		m := smol(namespace(), 2)
		pods := serve(m, 2)
		becomes(m, v1alpha1.Ready, "True Serving")
		force(&pods[0])
		Eventually(func(g Gomega) {
			now := workers(g, m)
			g.Expect(now).To(HaveLen(2))
			g.Expect(now).NotTo(ContainElement(HaveField("UID", pods[0].UID)))
		}).Should(Succeed())
		status(&pods[1], func(s *corev1.PodStatus) {
			s.Phase, s.Reason = corev1.PodFailed, "Evicted"
			s.Conditions = nil
		})
		Eventually(func(g Gomega) {
			now := workers(g, m)
			g.Expect(now).To(HaveLen(2))
			g.Expect(now).NotTo(ContainElement(HaveField("UID", pods[1].UID)))
		}).Should(Succeed())
	})

	It("writes nothing once it is stable, however often it is looked at", func() {
		m := smol(namespace(), 2)
		serve(m, 2)
		becomes(m, v1alpha1.Ready, "True Serving")
		becomes(m, v1alpha1.Progressing, "False Stable")
		version, writes := m.ResourceVersion, models.writes.Load()
		var router v1alpha1.InferenceRouter
		Expect(c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: "default"}, &router)).To(Succeed())
		for i := range 5 {
			looks := fleet.looked()
			router.Annotations = map[string]string{"look": strings.Repeat("x", i+1)}
			Expect(c.Update(ctx, &router)).To(Succeed())
			Eventually(fleet.looked).Should(BeNumerically(">", looks))
		}
		Expect(fresh(Default, m).ResourceVersion).To(Equal(version))
		Expect(models.writes.Load()).To(Equal(writes))
	})

	It("creates nothing while it is being deleted", func() {
		m := smol(namespace(), 2, func(m *v1alpha1.InferenceModel) { m.Finalizers = []string{"example.com/hold"} })
		pods := workersOnce(m, 2)
		Expect(c.Delete(ctx, m)).To(Succeed())
		becomes(m, v1alpha1.Ready, "False Deleting")
		for i := range pods {
			force(&pods[i])
		}
		Eventually(func(g Gomega) { g.Expect(*fresh(g, m).Status.Replicas).To(BeZero()) }).Should(Succeed())
		Expect(allPods(Default, m)).To(BeEmpty())
		change(m, func(m *v1alpha1.InferenceModel) { m.Finalizers = nil })
	})

	It("does not adopt the pods of an orphaned namesake", func() {
		ns := namespace()
		first := smol(ns, 1)
		left := workersOnce(first, 1)[0]
		Expect(c.Delete(ctx, first, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		change(first, func(m *v1alpha1.InferenceModel) { m.Finalizers = nil }) // the garbage collector's part
		second := smol(ns, 1)
		pod := workersOnce(second, 1)[0]
		Expect(pod.UID).NotTo(Equal(left.UID))
		Expect(fresh(Default, &left).DeletionTimestamp).To(BeNil())
	})

	It("leaves a name to the older model until that one is gone", func() {
		ns := namespace()
		older := smol(ns, 0, func(m *v1alpha1.InferenceModel) {
			m.Spec.ModelName, m.Spec.Scaling.MinReplicas = "org/shared", new(int32(0))
		})
		becomes(older, v1alpha1.Ready, "True ScaledToZero")
		younger := smol(ns, 0, func(m *v1alpha1.InferenceModel) {
			m.Name, m.UID, m.Spec.Scaling.MinReplicas = "younger", "", new(int32(0))
			m.Spec.Aliases = []string{"org/shared"}
		})
		// Objects of one second are told apart by their UIDs.
		loser, winner := younger, older
		if older.CreationTimestamp.Equal(&younger.CreationTimestamp) && younger.UID < older.UID {
			loser, winner = older, younger
		}
		becomes(loser, v1alpha1.NamesAccepted, "False NameTaken")
		becomes(winner, v1alpha1.NamesAccepted, "True NamesFree")
		Expect(loser.Status.ServedNames).NotTo(ContainElement("org/shared"))
		Expect(c.Delete(ctx, winner)).To(Succeed())
		becomes(loser, v1alpha1.NamesAccepted, "True NamesFree")
		Expect(loser.Status.ServedNames).To(ContainElement("org/shared"))
	})

	It("recovers from a broken change by another change, without anything being deleted by hand", func() {
		m := smol(namespace(), 1)
		good := serve(m, 1)[0]
		becomes(m, v1alpha1.Ready, "True Serving")
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = "missing.gguf" })
		var broken *corev1.Pod
		Eventually(func(g Gomega) {
			now := workers(g, m)
			g.Expect(now).To(HaveLen(2))
			for i := range now {
				if now[i].UID != good.UID {
					broken = &now[i]
				}
			}
		}).Should(Succeed())
		run(broken, "broken")
		fleet.say(m.Namespace, inRing(&good, "i-"+good.Name), at(broken, v1alpha1.StageFailed, "WeightsNotFound", "no missing.gguf"))
		becomes(m, v1alpha1.WeightsCached, "False WeightsNotFound")
		becomes(m, v1alpha1.Ready, "False WeightsNotUsable")
		Expect(fresh(Default, &good).DeletionTimestamp).To(BeNil())

		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = "there.gguf" })
		var mended *corev1.Pod
		Eventually(func(g Gomega) {
			now := workers(g, m)
			g.Expect(now).To(HaveLen(2))
			mended = nil
			for i := range now {
				if now[i].UID != good.UID && now[i].UID != broken.UID {
					mended = &now[i]
				}
			}
			g.Expect(mended).NotTo(BeNil())
		}).Should(Succeed())
		run(mended, "mended")
		fleet.say(m.Namespace, inRing(&good, "i-"+good.Name), inRing(mended, "m"))
		Eventually(func(g Gomega) {
			open, _ := gate(fresh(g, mended))
			g.Expect(open).To(Equal(corev1.ConditionTrue))
		}).Should(Succeed())
		Expect(fresh(Default, &good).DeletionTimestamp).To(BeNil(), "the old worker went before the new one was Ready")
		ready(mended)
		Eventually(func(g Gomega) { g.Expect(workers(g, m)).To(HaveLen(1)) }).Should(Succeed())
		becomes(m, v1alpha1.Ready, "True Serving")
	})

	It("follows the scale subresource within its bounds", func() {
		m := smol(namespace(), 1)
		workersOnce(m, 1)
		Eventually(func(g Gomega) { g.Expect(fresh(g, m).Status.Selector).NotTo(BeEmpty()) }).Should(Succeed())
		scale := func(n int32) {
			Expect(c.SubResource("scale").Update(ctx, m, client.WithSubResourceBody(
				&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: n}}))).To(Succeed())
		}
		scale(9)
		workersOnce(m, 4)
		Eventually(func(g Gomega) {
			g.Expect(fresh(g, m).Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("9 were asked for; scaling.maxReplicas is 4"))))
		}).Should(Succeed())
		scale(0)
		workersOnce(m, 1)
		var now autoscalingv1.Scale
		Expect(c.SubResource("scale").Get(ctx, m, &now)).To(Succeed())
		Expect(now.Status.Selector).To(Equal(v1alpha1.LabelModelUID + "=" + string(m.UID)))
	})

	It("keeps a disruption budget that lets a worker go, whatever replicas are asked for, and writes it again when it is gone", func() {
		m := smol(namespace(), 1)
		workersOnce(m, 1)
		budget := &policyv1.PodDisruptionBudget{}
		is := func(unavailable, available *intstr.IntOrString) {
			EventuallyWithOffset(1, func(g Gomega) {
				var all policyv1.PodDisruptionBudgetList
				g.Expect(c.List(ctx, &all, client.InNamespace(m.Namespace), client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)})).To(Succeed())
				g.Expect(all.Items).To(HaveLen(1))
				*budget = all.Items[0]
				g.Expect(budget.Spec.MaxUnavailable).To(Equal(unavailable))
				g.Expect(budget.Spec.MinAvailable).To(Equal(available))
			}).Should(Succeed())
		}
		is(new(intstr.FromInt32(1)), nil)
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = new(int32(9)) })
		is(nil, new(intstr.FromInt32(3)))
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = new(int32(2)) })
		is(new(intstr.FromInt32(1)), nil)
		gone := budget.UID
		Expect(c.Delete(ctx, budget)).To(Succeed())
		is(new(intstr.FromInt32(1)), nil)
		Expect(budget.UID).NotTo(Equal(gone))
	})

	It("says which pool is missing, and goes on when it is there", func() {
		ns := namespace()
		m := smol(ns, 1, func(m *v1alpha1.InferenceModel) { m.Spec.PoolRef.Name = "gpus" })
		becomes(m, v1alpha1.Ready, "False PoolNotFound")
		Expect(c.Create(ctx, &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "gpus", Namespace: ns}})).To(Succeed())
		workersOnce(m, 1)
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, &v1alpha1.WorkerPool{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "a default pool that nobody refers to: %v", err)
	})

	It("says which pod somebody has taken its label from, and goes on when it has it again", func() {
		m := smol(namespace(), 1)
		pod := &workersOnce(m, 1)[0]
		label := func(value string) {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelModelUID, value)
			Expect(c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		label("")
		becomes(m, v1alpha1.Ready, "False PodRejected")
		Expect(m.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring(pod.Name+" exists without the label"))))
		label(string(m.UID))
		becomes(m, v1alpha1.Ready, "False WorkersStarting")
		Expect(workers(Default, m)).To(HaveLen(1))
	})

	It("says why the API server refuses its pods, and goes on when it no longer does", func() {
		ns := namespace()
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: ns},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}}}
		Expect(c.Create(ctx, quota)).To(Succeed())
		quota.Status.Hard = quota.Spec.Hard
		quota.Status.Used = quota.Spec.Hard
		Expect(c.Status().Update(ctx, quota)).To(Succeed())
		m := smol(ns, 1)
		becomes(m, v1alpha1.Ready, "False PodRejected")
		Expect(c.Delete(ctx, quota)).To(Succeed())
		workersOnce(m, 1)
	})
})
