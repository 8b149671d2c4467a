package desired

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// DisruptionBudget lets evictions, such as those of a node's drain, take one worker of m at a time, and one that is not
// Ready always. Kubernetes counts the workers that are wanted by m's scale, which is spec.replicas; where replicas, those
// within the bounds, are others, the budget holds a number instead, or it would let no worker go.
func DisruptionBudget(m *v1alpha1.InferenceModel, replicas int) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	spec := policyv1ac.PodDisruptionBudgetSpec().
		WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(Selector(m)))
	if m.Spec.Replicas != nil && int(*m.Spec.Replicas) != replicas {
		spec.WithMinAvailable(intstr.FromInt(max(replicas-1, 0)))
	} else {
		spec.WithMaxUnavailable(intstr.FromInt32(1))
	}
	return policyv1ac.PodDisruptionBudget(ServiceName(m), m.Namespace).
		WithLabels(labels(m)).
		WithOwnerReferences(owner(m)).
		WithSpec(spec)
}
