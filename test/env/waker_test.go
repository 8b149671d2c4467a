package env

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// asleep makes a model without workers.
func asleep(ns string, changes ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	m := smol(ns, 0, append(changes, func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = new(int32(0)) })...)
	Expect(m.Spec.Replicas).To(HaveValue(BeZero()))
	return m
}

var _ = Describe("a model that sleeps", func() {
	It("gets one worker when requests wait for it, and an event says so", func() {
		ns := namespace()
		m := asleep(ns)
		fleet.wait(ns, m.UID)
		workersOnce(m, 1)
		Expect(fresh(Default, m).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
		Eventually(func(g Gomega) {
			var list eventsv1.EventList
			g.Expect(c.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			g.Expect(list.Items).To(ContainElement(HaveField("Reason", "ModelWoken")))
		}).Should(Succeed())
	})

	It("sleeps on when requests wait for another", func() {
		ns := namespace()
		m, other := asleep(ns), asleep(ns, func(m *v1alpha1.InferenceModel) { m.Name = "other" })
		fleet.wait(ns, other.UID)
		workersOnce(other, 1)
		Expect(fresh(Default, m).Spec.Replicas).To(HaveValue(BeZero()))
	})

	It("is woken again after it was sent to sleep again", func() {
		ns := namespace()
		m := asleep(ns)
		fleet.wait(ns, m.UID)
		workersOnce(m, 1)
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = new(int32(0)) })
		Eventually(func(g Gomega) {
			g.Expect(fresh(g, m).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
		}).Should(Succeed())
	})
})
