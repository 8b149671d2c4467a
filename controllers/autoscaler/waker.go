// Package autoscaler decides how many workers a model has. It writes the count through the scale subresource alone, and
// keeps it within the bounds of the model's scaling. What it does: a model that sleeps, with no replicas, gets one as soon
// as requests wait for it. It never makes or removes a worker itself.
package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Routers tell what requests wait for; *fleetclient.Client does.
type Routers interface {
	// Wakes tells the UID of each model of a namespace that requests wait for, until ctx ends. It looks for routers again at
	// each tick of again.
	Wakes(ctx context.Context, namespace string, again <-chan time.Time, tell func(modelUID string)) error
}

// refresh is how often the routers of a namespace with a sleeping model are looked for.
const refresh = time.Second

// Waker wakes models. Its exported fields are set before its first use. As a controller of InferenceModels it learns who
// sleeps, and as a runnable it listens to the routers of the namespaces in which somebody does.
type Waker struct {
	// Client reads from the cache and writes the scale.
	Client  client.Client
	Routers Routers
	Events  events.EventRecorder
	Clock   clock.WithTicker

	once    sync.Once
	changed chan struct{} // holds a token when sleeping has changed

	mu       sync.Mutex                                    // guards sleeping; never held during a call
	sleeping map[string]map[types.UID]types.NamespacedName // by namespace
}

// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels,verbs=get;list;watch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels/scale,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager makes mgr call w for every change of a model, and run it.
func (w *Waker) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(w); err != nil {
		return fmt.Errorf("add the waker: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("waker").
		For(&v1alpha1.InferenceModel{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(w)
}

// Reconcile notes whether a model sleeps.
func (w *Waker) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w.init()
	var m v1alpha1.InferenceModel
	err := w.Client.Get(ctx, req.NamespacedName, &m)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get InferenceModel %s: %w", req.NamespacedName, err)
	}
	w.mu.Lock()
	for uid, name := range w.sleeping[req.Namespace] {
		if name == req.NamespacedName {
			delete(w.sleeping[req.Namespace], uid)
		}
	}
	if err == nil && sleeps(&m) {
		if w.sleeping[req.Namespace] == nil {
			w.sleeping[req.Namespace] = map[types.UID]types.NamespacedName{}
		}
		w.sleeping[req.Namespace][m.UID] = req.NamespacedName
	}
	if len(w.sleeping[req.Namespace]) == 0 {
		delete(w.sleeping, req.Namespace)
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return ctrl.Result{}, nil
}

func (w *Waker) init() {
	w.once.Do(func() {
		w.changed, w.sleeping = make(chan struct{}, 1), map[string]map[types.UID]types.NamespacedName{}
	})
}

// sleeps reports whether a model has no worker, and may have one.
func sleeps(m *v1alpha1.InferenceModel) bool {
	return m.DeletionTimestamp.IsZero() && m.Spec.Replicas != nil && *m.Spec.Replicas == 0 &&
		(m.Spec.Scaling.MaxReplicas == nil || *m.Spec.Scaling.MaxReplicas > 0)
}

// least is how many workers a model that wakes gets.
func least(m *v1alpha1.InferenceModel) int32 {
	if m.Spec.Scaling.MinReplicas == nil {
		return 1
	}
	return max(1, *m.Spec.Scaling.MinReplicas)
}

// Start listens until ctx ends.
func (w *Waker) Start(ctx context.Context) error {
	w.init()
	var listening sync.WaitGroup
	defer listening.Wait()
	open := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range open {
			stop()
		}
	}()
	for {
		asleep := w.namespaces()
		for _, name := range asleep {
			if open[name] == nil {
				inner, stop := context.WithCancel(ctx)
				open[name] = stop
				listening.Go(func() { w.listen(inner, name) })
			}
		}
		for name, stop := range open {
			if !slices.Contains(asleep, name) {
				stop()
				delete(open, name)
			}
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// namespaces are those in which a model sleeps.
func (w *Waker) namespaces() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.sleeping))
}

// listen wakes the models of a namespace that its routers name, until ctx ends.
func (w *Waker) listen(ctx context.Context, namespace string) {
	t := w.Clock.NewTicker(refresh)
	defer t.Stop()
	for ctx.Err() == nil {
		err := w.Routers.Wakes(ctx, namespace, t.C(), func(uid string) { w.wake(ctx, namespace, types.UID(uid)) })
		if err == nil || ctx.Err() != nil {
			return
		}
		log.FromContext(ctx).Error(err, "listen to the routers of a namespace with sleeping models", "namespace", namespace)
		select {
		case <-t.C():
		case <-ctx.Done():
		}
	}
}

// wake gives a model that sleeps one replica. What can't be written now is written when a router says so again: it does as
// long as requests wait.
func (w *Waker) wake(ctx context.Context, namespace string, uid types.UID) {
	w.mu.Lock()
	name, ok := w.sleeping[namespace][uid]
	w.mu.Unlock()
	if !ok {
		return
	}
	var m v1alpha1.InferenceModel
	err := w.Client.Get(ctx, name, &m)
	if err == nil && (m.UID != uid || !sleeps(&m)) {
		return
	}
	if err == nil {
		scale := &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion},
			Spec:       autoscalingv1.ScaleSpec{Replicas: least(&m)},
		}
		err = w.Client.SubResource("scale").Update(ctx, &m, client.WithSubResourceBody(scale))
	}
	switch {
	case err == nil:
		w.Events.Eventf(&m, nil, corev1.EventTypeNormal, "ModelWoken", "Scale", "requests wait for the model: it gets a worker")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), errors.Is(err, context.Canceled):
	default:
		log.FromContext(ctx).Error(err, "wake a model", "model", name)
	}
}
