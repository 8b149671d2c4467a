// Package inferencerouter makes an InferenceRouter's children what they should be and says in its status how they are.
// What they should be is decided by package desired, the status by pure functions here. It never speaks to a router:
// who is in which ring is asked by the controller of models.
package inferencerouter

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// The manager may write RoleBindings, but none that gives more than the one ClusterRole that it may bind.
//
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencerouters,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencerouters/status,verbs=get;patch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencerouters/finalizers,verbs=update
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=ringfleet-router,verbs=bind
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// issuer makes the Secrets that router pods mount, before there are pods that wait for them.
type issuer interface {
	Ensure(ctx context.Context, namespace string) (time.Time, error)
}

// Reconciler keeps the children and the status of InferenceRouters.
type Reconciler struct {
	Client   client.Client
	Recorder events.EventRecorder
	Issuer   issuer
	Clock    clock.PassiveClock
	Settings desired.Settings
}

// scope is one reconcile's state.
type scope struct {
	router *v1alpha1.InferenceRouter
	seen   observed
}

// Reconcile brings one InferenceRouter nearer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	before := &v1alpha1.InferenceRouter{}
	if err := r.Client.Get(ctx, req.NamespacedName, before); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if gone, err := r.removeUnneeded(ctx, before); gone || err != nil {
		return step.Outcome(0, err)
	}
	s := &scope{router: before.DeepCopy()}
	err := step.Run(ctx, s,
		step.Step[*scope]{Name: "issue certificates", Do: r.issue},
		step.Step[*scope]{Name: "apply children", Do: r.apply},
	)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil
	}
	err = errors.Join(err, r.observe(ctx, s))
	judge(s.router, s.seen, problem(err), r.Clock.Now())
	wrote, statusErr := step.WriteStatus(ctx, r.Client, before, s.router)
	if wrote {
		r.tell(before, s.router)
	}
	return step.Outcome(0, errors.Join(err, statusErr))
}

// removeUnneeded deletes a router that was created for models once its namespace has none, and reports whether it did.
func (r *Reconciler) removeUnneeded(ctx context.Context, router *v1alpha1.InferenceRouter) (bool, error) {
	if _, marked := router.Labels[v1alpha1.LabelCreatedFor]; !marked || router.Name != v1alpha1.DefaultName || router.DeletionTimestamp != nil {
		return false, nil
	}
	models := &v1alpha1.InferenceModelList{}
	if err := r.Client.List(ctx, models, client.InNamespace(router.Namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("list the models of namespace %s: %w", router.Namespace, err)
	}
	if len(models.Items) > 0 {
		return false, nil
	}
	err := r.Client.Delete(ctx, router, client.Preconditions{UID: &router.UID, ResourceVersion: &router.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete InferenceRouter %s, which no model needs any more: %w", client.ObjectKeyFromObject(router), err)
	}
	ctrl.LoggerFrom(ctx).Info("Removed the default router with the last model of its namespace")
	return true, nil
}

// issue makes the certificates that the pods mount. A write that lost a race is somebody else's success.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	if s.router.DeletionTimestamp != nil {
		return nil
	}
	_, err := r.Issuer.Ensure(ctx, s.router.Namespace)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
