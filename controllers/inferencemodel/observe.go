package inferencemodel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// scope is one reconcile: what was observed, what was decided, and what came of it.
type scope struct {
	now   time.Time
	model *v1alpha1.InferenceModel

	// pool is nil when the one that the model names does not exist; router when the namespace has none.
	pool   *v1alpha1.WorkerPool
	router *v1alpha1.InferenceRouter
	// workers are the pods that the model controls, by name; strangers have its label and are not its own.
	workers   []worker
	strangers []worker
	view      View
	// counted: workers and view were observed.
	counted bool
	// names are the model's own, lost those of its claims that others have.
	names []string
	lost  []taken

	want wanted
	plan plan

	// confirmed: the API server itself was asked and has the model, not being deleted.
	confirmed bool
	// rejected is why the API server refuses a pod; it is no error of the reconcile.
	rejected error
}

// observe reads the pool, the router, the pods and the other models of the namespace, and decides who has which name.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	var pool v1alpha1.WorkerPool
	key := client.ObjectKey{Namespace: s.model.Namespace, Name: names.Pool(s.model)}
	switch err := r.Client.Get(ctx, key, &pool); {
	case err == nil:
		s.pool = &pool
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get WorkerPool %s: %w", key, err)
	}
	var routers v1alpha1.InferenceRouterList
	if err := r.Client.List(ctx, &routers, client.InNamespace(s.model.Namespace)); err != nil {
		return fmt.Errorf("list InferenceRouters of namespace %s: %w", s.model.Namespace, err)
	}
	s.router = frontDoor(routers.Items)
	var models v1alpha1.InferenceModelList
	if err := r.Client.List(ctx, &models, client.InNamespace(s.model.Namespace)); err != nil {
		return fmt.Errorf("list InferenceModels of namespace %s: %w", s.model.Namespace, err)
	}
	s.names, s.lost = shareNames(s.model, models.Items)
	return nil
}

// observeWorkers asks the routers and reads the model's pods.
func (r *Reconciler) observeWorkers(ctx context.Context, s *scope) error {
	view, err := r.Routers.Look(ctx, s.model.Namespace)
	if err != nil {
		return fmt.Errorf("ask the routers of namespace %s: %w", s.model.Namespace, err)
	}
	s.view = view
	var pods corev1.PodList
	err = r.Client.List(ctx, &pods, client.InNamespace(s.model.Namespace), client.MatchingLabels(desired.Selector(s.model)))
	if err != nil {
		return fmt.Errorf("list the pods of InferenceModel %s/%s: %w", s.model.Namespace, s.model.Name, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods.Items {
		pod := &pods.Items[i]
		if metav1.IsControlledBy(pod, s.model) {
			s.workers = append(s.workers, observeWorker(pod, view))
		} else {
			s.strangers = append(s.strangers, observeWorker(pod, view))
		}
	}
	s.counted = true
	return nil
}

// frontDoor is the router that a model's URL and messages name: the default one, else the first by name.
func frontDoor(routers []v1alpha1.InferenceRouter) *v1alpha1.InferenceRouter {
	var first *v1alpha1.InferenceRouter
	for i := range routers {
		r := &routers[i]
		if r.Name == v1alpha1.DefaultName {
			return r
		}
		if first == nil || r.Name < first.Name {
			first = r
		}
	}
	return first
}
