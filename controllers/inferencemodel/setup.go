package inferencemodel

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// SetupWithManager makes mgr call r for every change that may concern a model: of itself, its pods, Service and
// disruption budget, its pool, the routers of its namespace, and models that claim one of its names.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	spec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("inferencemodel").
		For(&v1alpha1.InferenceModel{}, spec).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}, spec).
		Watches(&v1alpha1.WorkerPool{}, handler.EnqueueRequestsFromMapFunc(r.modelsOfPool), spec).
		Watches(&v1alpha1.InferenceRouter{}, handler.EnqueueRequestsFromMapFunc(r.modelsOfRouter)).
		Watches(&v1alpha1.InferenceModel{}, handler.EnqueueRequestsFromMapFunc(r.rivals), spec).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency}).
		Complete(r)
}

// modelsOfPool are the models that refer to a pool.
func (r *Reconciler) modelsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return r.models(ctx, pool, func(m *v1alpha1.InferenceModel) bool { return names.Pool(m) == pool.GetName() })
}

// modelsOfRouter are all models of a router's namespace.
func (r *Reconciler) modelsOfRouter(ctx context.Context, router client.Object) []reconcile.Request {
	return r.models(ctx, router, func(*v1alpha1.InferenceModel) bool { return true })
}

// rivals are the models that claim a name which another model claims or has given up.
func (r *Reconciler) rivals(ctx context.Context, o client.Object) []reconcile.Request {
	other, ok := o.(*v1alpha1.InferenceModel)
	if !ok {
		return nil
	}
	names := claims(other)
	return r.models(ctx, other, func(m *v1alpha1.InferenceModel) bool {
		return m.UID != other.UID && slices.ContainsFunc(claims(m), func(n string) bool { return slices.Contains(names, n) })
	})
}

// models are the models in the namespace of o that fit.
func (r *Reconciler) models(ctx context.Context, o client.Object, fits func(*v1alpha1.InferenceModel) bool) []reconcile.Request {
	var list v1alpha1.InferenceModelList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list the models that a change concerns", "namespace", o.GetNamespace())
		return nil
	}
	var rs []reconcile.Request
	for i := range list.Items {
		if m := &list.Items[i]; fits(m) {
			rs = append(rs, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}})
		}
	}
	return rs
}
