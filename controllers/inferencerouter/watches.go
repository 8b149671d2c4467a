package inferencerouter

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
)

// SetupWithManager starts the reconciler with mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	goes := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.InferenceRouter{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&rbacv1.RoleBinding{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(&v1alpha1.InferenceModel{}, handler.EnqueueRequestsFromMapFunc(ofModel), goes).
		Complete(r)
}

// ofPod names the router that a pod belongs to. The label may hold a shortened name, so it is compared with all routers
// of the namespace.
func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	label, ok := pod.GetLabels()[v1alpha1.LabelRouter]
	if !ok {
		return nil
	}
	routers := &v1alpha1.InferenceRouterList{}
	if err := r.Client.List(ctx, routers, client.InNamespace(pod.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the routers that a pod may belong to", "pod", pod.GetName())
		return nil
	}
	for i := range routers.Items {
		if desired.Selector(&routers.Items[i])[v1alpha1.LabelRouter] == label {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(&routers.Items[i])}}
		}
	}
	return nil
}

// ofModel names the router that may have been created for a model.
func ofModel(_ context.Context, model client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: model.GetNamespace(), Name: v1alpha1.DefaultName}}}
}
