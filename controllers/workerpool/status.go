package workerpool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
)

// observed is who uses a pool, and the nodes that its selector matches.
type observed struct {
	models, workers int32
	nodes           []node
}

// judge writes into pool's status what seen means at now.
func judge(pool *v1alpha1.WorkerPool, seen observed, now time.Time) {
	pool.Status.ObservedGeneration = pool.Generation
	pool.Status.Models, pool.Status.Workers = &seen.models, &seen.workers
	conditions.Set(&pool.Status.Conditions, pool.Generation, now, ready(pool, seen))
}

// ready judges whether workers could be placed on the pool.
func ready(pool *v1alpha1.WorkerPool, seen observed) conditions.Finding {
	offered, missing := accelerators(pool, seen.nodes)
	switch {
	case len(seen.nodes) == 0 && len(pool.Spec.NodeSelector) > 0:
		return conditions.False(v1alpha1.Ready, v1alpha1.ReasonNoMatchingNode, fmt.Sprintf(
			"no node has the labels %s of spec.nodeSelector; label a node or change the selector", labels.FormatLabels(pool.Spec.NodeSelector)))
	case len(seen.nodes) == 0:
		return conditions.False(v1alpha1.Ready, v1alpha1.ReasonNoMatchingNode, "the cluster has no node")
	case missing != "":
		return conditions.False(v1alpha1.Ready, v1alpha1.ReasonNoAccelerator, missing)
	case seen.models == 0:
		return conditions.True(v1alpha1.Ready, v1alpha1.ReasonUnused, "no model refers to the pool")
	default:
		where := conditions.Count(len(seen.nodes), "matching node", "matching nodes")
		if offered != "" {
			where += ", which offer " + offered
		}
		return conditions.True(v1alpha1.Ready, v1alpha1.ReasonInUse, fmt.Sprintf("%s and %s on %s",
			conditions.Count(seen.models, "model", "models"), conditions.Count(seen.workers, "worker", "workers"), where))
	}
}

// tell records an event when no node fits any more, or one does again.
func (r *Reconciler) tell(before, after *v1alpha1.WorkerPool) {
	was := meta.FindStatusCondition(before.Status.Conditions, string(v1alpha1.Ready))
	is := meta.FindStatusCondition(after.Status.Conditions, string(v1alpha1.Ready))
	if is == nil || (was != nil && was.Status == is.Status) {
		return
	}
	severity := corev1.EventTypeNormal
	if is.Status == metav1.ConditionFalse {
		severity = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(after, nil, severity, is.Reason, "Observe", "%s", is.Message)
}
