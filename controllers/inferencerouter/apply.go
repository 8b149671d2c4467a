package inferencerouter

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// apply makes the children what they should be. Nothing is made for a router that is being deleted; Kubernetes removes
// its children.
func (r *Reconciler) apply(ctx context.Context, s *scope) error {
	if s.router.DeletionTimestamp != nil {
		return nil
	}
	router := s.router
	var errs []error
	note := func(_ bool, err error) { errs = append(errs, err) }
	note(step.Apply(ctx, r.Client, &corev1.ServiceAccount{}, desired.ServiceAccount(router), coreac.ExtractServiceAccount))
	note(step.Apply(ctx, r.Client, &rbacv1.RoleBinding{}, desired.RoleBinding(router, r.Settings), rbacac.ExtractRoleBinding))
	note(step.Apply(ctx, r.Client, &corev1.Service{}, desired.Service(router), coreac.ExtractService))
	note(step.Apply(ctx, r.Client, &appsv1.Deployment{}, desired.Deployment(router, r.Settings), appsac.ExtractDeployment))
	if budget := desired.DisruptionBudget(router); budget != nil {
		note(step.Apply(ctx, r.Client, &policyv1.PodDisruptionBudget{}, budget, policyac.ExtractPodDisruptionBudget))
	} else {
		errs = append(errs, r.removeBudget(ctx, router))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) removeBudget(ctx context.Context, router *v1alpha1.InferenceRouter) error {
	budget := &policyv1.PodDisruptionBudget{}
	key := client.ObjectKey{Namespace: router.Namespace, Name: desired.Name(router)}
	err := r.Client.Get(ctx, key, budget)
	if err == nil && metav1.IsControlledBy(budget, router) {
		err = r.Client.Delete(ctx, budget, client.Preconditions{UID: &budget.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove PodDisruptionBudget %s: %w", key, err)
	}
	return nil
}
