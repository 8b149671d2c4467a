package workerpool

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// SetupWithManager starts the reconciler with mgr, whose cache need keep of nodes only what TrimNode leaves.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.WorkerPool{}).
		Watches(&v1alpha1.InferenceModel{}, handler.EnqueueRequestsFromMapFunc(ofModel),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(countChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(nodeChanges)).
		Complete(r)
}

// countChanges lets pass what may change the number of workers.
var countChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Pod)
	after, ok2 := e.ObjectNew.(*corev1.Pod)
	return ok && ok2 && before.Status.Phase != after.Status.Phase
}}

// nodeChanges lets pass what may change what a node has for workers: its labels, and what device plugins offer there. Of the
// rest, a node's heartbeats among it, there is much.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return ok && ok2 && !(maps.Equal(before.Labels, after.Labels) && maps.Equal(observeNode(before).offers, observeNode(after).offers))
}}

// TrimNode is a cache's transform: it leaves of a node what pools are judged by.
func TrimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil // a tombstone: there is nothing to keep
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Status:     corev1.NodeStatus{Allocatable: n.Status.Allocatable},
	}, nil
}

func ofModel(_ context.Context, o client.Object) []reconcile.Request {
	pools := map[string]bool{v1alpha1.DefaultName: true} // the default pool goes with the last model, whatever its pool
	if m, ok := o.(*v1alpha1.InferenceModel); ok {
		pools[names.Pool(m)] = true
	}
	requests := make([]reconcile.Request, 0, len(pools))
	for name := range pools {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// ofPod names the pool of a worker pod. The label may hold a shortened name, so it is compared with all pools of the
// namespace.
func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	label, ok := pod.GetLabels()[v1alpha1.LabelPool]
	if !ok {
		return nil
	}
	return r.matching(ctx, func(p *v1alpha1.WorkerPool) bool { return names.Label(p.Name) == label }, client.InNamespace(pod.GetNamespace()))
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.matching(ctx, func(*v1alpha1.WorkerPool) bool { return true })
}

func (r *Reconciler) matching(ctx context.Context, want func(*v1alpha1.WorkerPool) bool, where ...client.ListOption) []reconcile.Request {
	pools := &v1alpha1.WorkerPoolList{}
	if err := r.Client.List(ctx, pools, where...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the pools that a change may concern")
		return nil
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		if want(&pools.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
		}
	}
	return requests
}
