package inferencerouter

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
)

// maxNote is how long an event's note may be.
const maxNote = 1000

// tell records an event when Ready has changed its status or its reason.
func (r *Reconciler) tell(before, after *v1alpha1.InferenceRouter) {
	was, is := condition(before, v1alpha1.Ready), condition(after, v1alpha1.Ready)
	if was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	r.Recorder.Eventf(after, nil, severity(is), is.Reason, "Observe", "%s", conditions.Shorten(is.Message, maxNote))
}

// severity is Warning for what does not pass by itself.
func severity(c metav1.Condition) string {
	switch v1alpha1.Reason(c.Reason) {
	case v1alpha1.ReasonRouting, v1alpha1.ReasonRoutersStarting, v1alpha1.ReasonDeleting:
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
