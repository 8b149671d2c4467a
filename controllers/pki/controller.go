package pki

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// Secrets are read through caches that hold one name each, so the manager may list and watch Secrets of these names
// only: the API server takes the name for such a request from its field selector. Creating can't be bound to a name.
// The authority's Secret is in the manager's own namespace, under a Role there.
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=ringfleet-worker-tls;ringfleet-router-tls,verbs=get;list;watch;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,namespace=ringfleet-system,resourceNames=ringfleet-ca,verbs=get;list;watch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels;inferencerouters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch

// soonest is the shortest time between two looks at a namespace that nothing asked for.
const soonest = time.Minute

// Reconciler keeps the role Secrets of every namespace that has a model, a router or one of their pods. A request's
// name is a namespace.
type Reconciler struct {
	Client client.Client
	Issuer *Issuer
	Clock  clock.PassiveClock
	// Forget drops what is kept in memory of a namespace that nothing uses any more.
	Forget func(namespace string)
	// RoleSecrets are the caches of the Secrets of each role, and CASecret that of the authority's.
	RoleSecrets map[identity.Role]cache.Cache
	CASecret    cache.Cache
}

// Reconcile makes or renews the Secrets of a namespace, or removes them once nothing there uses them.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	used, err := r.used(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !used {
		r.Forget(req.Name)
		return step.Outcome(0, r.Issuer.Remove(ctx, req.Name))
	}
	due, err := r.Issuer.Ensure(ctx, req.Name)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case apierrors.IsAlreadyExists(err): // the cache is behind: look again when it has caught up
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return step.Outcome(max(due.Sub(r.Clock.Now()), soonest), err)
}

// used reports whether namespace has anything that shows or checks certificates. Pods count: one that drains for ten
// minutes after its model has gone may still restart its container.
func (r *Reconciler) used(ctx context.Context, namespace string) (bool, error) {
	models, routers, pods := &v1alpha1.InferenceModelList{}, &v1alpha1.InferenceRouterList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{models, routers, pods} {
		if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, fmt.Errorf("list what uses certificates in namespace %s: %w", namespace, err)
		}
	}
	return len(models.Items)+len(routers.Items)+len(pods.Items) > 0, nil
}

// SetupWithManager starts the reconciler with mgr. The manager's cache of pods holds those of workers and routers only.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	comesOrGoes := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	goes := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("certificates").
		Watches(&v1alpha1.InferenceModel{}, toNamespace, comesOrGoes).
		Watches(&v1alpha1.InferenceRouter{}, toNamespace, comesOrGoes).
		Watches(&corev1.Pod{}, toNamespace, goes)
	secretToNamespace := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, s *corev1.Secret) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: s.Namespace}}}
	})
	for _, c := range r.RoleSecrets {
		b = b.WatchesRawSource(source.Kind(c, &corev1.Secret{}, secretToNamespace))
	}
	return b.WatchesRawSource(source.Kind(r.CASecret, &corev1.Secret{},
		handler.TypedEnqueueRequestsFromMapFunc(r.everyNamespace))).Complete(r)
}

// everyNamespace returns the namespaces that have a role Secret.
func (r *Reconciler) everyNamespace(ctx context.Context, _ *corev1.Secret) []reconcile.Request {
	seen := map[string]bool{}
	var requests []reconcile.Request
	for _, c := range r.RoleSecrets {
		list := &corev1.SecretList{}
		if err := c.List(ctx, list); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Could not list the namespaces to renew certificates in")
			continue
		}
		for i := range list.Items {
			if ns := list.Items[i].Namespace; !seen[ns] {
				seen[ns] = true
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: ns}})
			}
		}
	}
	return requests
}
