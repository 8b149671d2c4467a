// Package workerpool says in a WorkerPool's status who uses it and whether any node could, and removes a pool that was
// created for models once there are none. It places no worker: the scheduler does, from what the pool says.
package workerpool

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=workerpools,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=workerpools/status,verbs=get;patch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps the status of WorkerPools.
type Reconciler struct {
	Client   client.Client
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Reconcile looks at one pool.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	before := &v1alpha1.WorkerPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, before); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if gone, err := r.removeUnneeded(ctx, before); gone || err != nil {
		return step.Outcome(0, err)
	}
	pool := before.DeepCopy()
	seen, err := r.observe(ctx, pool)
	if err == nil {
		judge(pool, seen, r.Clock.Now())
		var wrote bool
		if wrote, err = step.WriteStatus(ctx, r.Client, before, pool); wrote {
			r.tell(before, pool)
		}
	}
	return step.Outcome(0, err)
}

// removeUnneeded deletes a pool that was created for models once its namespace has none, and reports whether it did.
func (r *Reconciler) removeUnneeded(ctx context.Context, pool *v1alpha1.WorkerPool) (bool, error) {
	if _, marked := pool.Labels[v1alpha1.LabelCreatedFor]; !marked || pool.Name != v1alpha1.DefaultName || pool.DeletionTimestamp != nil {
		return false, nil
	}
	left := &v1alpha1.InferenceModelList{}
	if err := r.Client.List(ctx, left, client.InNamespace(pool.Namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("list the models of namespace %s: %w", pool.Namespace, err)
	}
	if len(left.Items) > 0 {
		return false, nil
	}
	err := r.Client.Delete(ctx, pool, client.Preconditions{UID: &pool.UID, ResourceVersion: &pool.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete WorkerPool %s, which no model needs any more: %w", client.ObjectKeyFromObject(pool), err)
	}
	ctrl.LoggerFrom(ctx).Info("Removed the default pool with the last model of its namespace")
	return true, nil
}

// observe counts who uses pool, and looks at the nodes that its selector matches.
func (r *Reconciler) observe(ctx context.Context, pool *v1alpha1.WorkerPool) (observed, error) {
	users, pods := &v1alpha1.InferenceModelList{}, &corev1.PodList{}
	nodes := &corev1.NodeList{}
	in := client.InNamespace(pool.Namespace)
	err := errors.Join(
		r.Client.List(ctx, users, in),
		r.Client.List(ctx, pods, in, client.MatchingLabels{v1alpha1.LabelPool: names.Label(pool.Name)}),
		r.Client.List(ctx, nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(pool.Spec.NodeSelector)}),
	)
	if err != nil {
		return observed{}, fmt.Errorf("count who uses WorkerPool %s: %w", client.ObjectKeyFromObject(pool), err)
	}
	seen := observed{nodes: make([]node, 0, len(nodes.Items))}
	for i := range nodes.Items {
		seen.nodes = append(seen.nodes, observeNode(&nodes.Items[i]))
	}
	for i := range users.Items {
		if names.Pool(&users.Items[i]) == pool.Name {
			seen.models++
		}
	}
	for i := range pods.Items {
		if p := pods.Items[i].Status.Phase; p != corev1.PodFailed && p != corev1.PodSucceeded {
			seen.workers++
		}
	}
	return seen, nil
}
