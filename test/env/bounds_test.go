package env

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

var _ = Describe("an InferenceModel that changes", func() {
	It("follows a bound that is raised and lowered again, without any load", func() {
		m := smol(namespace(), 0, func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = new(int32(0)) })
		becomes(m, v1alpha1.Ready, "True ScaledToZero")
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = new(int32(2)) })
		workersOnce(m, 2)
		change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = new(int32(0)) })
		workersOnce(m, 0)
		becomes(m, v1alpha1.Ready, "True ScaledToZero")
	})

	It("makes one new worker for a change, and ends none that is new", func() {
		m := smol(namespace(), 2)
		serving := serve(m, 2)
		becomes(m, v1alpha1.Ready, "True Serving")
		const changes = 10
		for i := range changes {
			change(m, func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = fmt.Sprint(i, ".gguf") })
		}
		newest := func(g Gomega) *corev1.Pod {
			now := workers(g, m)
			g.Expect(now).To(HaveLen(3), "two that serve, and one of the newest revision")
			for i := range now {
				if uid := now[i].UID; uid != serving[0].UID && uid != serving[1].UID {
					return &now[i]
				}
			}
			return nil
		}
		var last *corev1.Pod
		Eventually(func(g Gomega) {
			last = newest(g)
			g.Expect(last).NotTo(BeNil())
			g.Expect(last.Labels).To(HaveKeyWithValue(v1alpha1.LabelRevision, fresh(g, m).Status.Revision))
			g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		}).Should(Succeed())
		made, _ := models.pods(m.Namespace)
		Expect(made).To(BeNumerically("<=", 2+changes))
		for i := range 10 { // it is looked at again and again while the new worker starts
			change(m, func(m *v1alpha1.InferenceModel) { m.Annotations = map[string]string{"look": fmt.Sprint(i)} })
			looks := fleet.looked()
			Eventually(fleet.looked).Should(BeNumerically(">", looks))
		}
		again, gone := models.pods(m.Namespace)
		Expect(again).To(Equal(made))
		Expect(newest(Default).UID).To(Equal(last.UID))
		Expect(gone).NotTo(ContainElement(BeElementOf(serving[0].UID, serving[1].UID, last.UID)))
	})
})
