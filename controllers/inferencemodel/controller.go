// Package inferencemodel makes an InferenceModel true: it decides which worker pods a model has, when one of them goes
// and another comes, when a worker's in-ring gate opens, and which names are whose, and it says in the status what is.
// It never talks to a worker or router itself, places no request, and decides no number of replicas.
package inferencemodel

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// Reconciler makes InferenceModels true. All fields but the last are set before its first use.
type Reconciler struct {
	// Client reads from the cache and must see its own writes of pods.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Routers is asked what routers and workers know.
	Routers routerView
	Events  events.EventRecorder
	Clock   clock.PassiveClock

	// WorkerImage is the image of workers whose model names none, WorkerCUDAImage of those that run llama.cpp on GPUs;
	// PullPolicy is for all of them.
	WorkerImage     string
	WorkerCUDAImage string
	PullPolicy      corev1.PullPolicy
	// Concurrency is how many models are worked on at once; at least 1.
	Concurrency int

	backoffs backoffs
}

// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels,verbs=get;list;watch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels/status,verbs=patch
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=inferencemodels/finalizers,verbs=update
// +kubebuilder:rbac:groups=inference.ringfleet.dev,resources=workerpools;inferencerouters,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one model closer to its spec and writes what it found.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope{now: r.Clock.Now(), model: &v1alpha1.InferenceModel{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.model); err != nil {
		if apierrors.IsNotFound(err) {
			r.backoffs.drop(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s.want = want(s.model, s.model.Status.Revision)
	err := step.Run(ctx, s, r.steps(s)...)
	if errors.Is(err, errGone) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil
	}
	err = errors.Join(err, r.writeStatus(ctx, s, err))
	return step.Outcome(s.next(), err)
}

func (r *Reconciler) steps(s *scope) []step.Step[*scope] {
	steps := []step.Step[*scope]{
		{Name: "observe the namespace", Do: r.observe},
		{Name: "observe workers", Do: r.observeWorkers},
	}
	if s.model.DeletionTimestamp != nil {
		return steps
	}
	return append(steps, []step.Step[*scope]{
		{Name: "create defaults", Do: r.createDefaults},
		{Name: "set gates", Do: r.setGates},
		{Name: "decide", Do: r.decide},
		{Name: "apply the Service", Do: r.applyService},
		{Name: "apply the disruption budget", Do: r.applyBudget},
		{Name: "remove workers", Do: r.remove},
		{Name: "create workers", Do: r.create},
	}...)
}

// writeStatus writes the status when it differs, and tells of what it says for the first time.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, failed error) error {
	if apierrors.IsConflict(failed) {
		failed = nil // the cache was behind; that is no news
	}
	after := s.model.DeepCopy()
	after.Status = status(s, failed)
	wrote, err := step.WriteStatus(ctx, r.Client, s.model, after)
	if !wrote || apierrors.IsNotFound(err) {
		return client.IgnoreNotFound(err)
	}
	before, now := s.model.Status, after.Status
	if len(s.lost) > 0 && nameMessage(before) != nameMessage(now) {
		tell(r.Events, s.model, namesTaken(s.lost))
	}
	if why, short := ranShort(before, now); short {
		tell(r.Events, s.model, memoryExceeded(why))
	}
	if before.Revision != "" && before.Revision != now.Revision {
		tell(r.Events, s.model, rolloutStarted(before.Revision, now.Revision))
	}
	return nil
}

// ranShort reports that MemoryFits has become False, and its message.
func ranShort(before, now v1alpha1.InferenceModelStatus) (string, bool) {
	c := meta.FindStatusCondition(now.Conditions, string(v1alpha1.MemoryFits))
	if c == nil || c.Status != metav1.ConditionFalse || meta.IsStatusConditionFalse(before.Conditions, string(v1alpha1.MemoryFits)) {
		return "", false
	}
	return c.Message, true
}

func nameMessage(s v1alpha1.InferenceModelStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, string(v1alpha1.NamesAccepted)); c != nil {
		return c.Message
	}
	return ""
}

// How soon a model is looked at again when no object changes.
const (
	soon     = 500 * time.Millisecond // a worker is about to enter the ring
	patient  = 5 * time.Second        // somebody has to mend something first
	resync   = 30 * time.Second       // nothing is expected; a silent router is noticed
	shortest = 50 * time.Millisecond
)

// next is how soon the model must be looked at again. Watches bring everything that Kubernetes knows; what only routers
// know has to be asked for.
func (s *scope) next() time.Duration {
	wait := resync
	at := func(d time.Duration) { wait = min(wait, max(d, shortest)) }
	if s.rejected != nil {
		at(patient)
	}
	if !s.plan.retry.IsZero() {
		at(s.plan.retry.Sub(s.now))
	}
	for _, w := range s.workers {
		switch {
		case !w.live() || w.container == "":
		case w.reported && w.report.Stage == v1alpha1.StageFailed:
			at(patient)
		case !w.gated, w.available && !w.serves(s.view):
			at(soon)
		}
	}
	for _, r := range s.view.heard() {
		if !r.Answered {
			at(patient)
		}
	}
	return wait
}

// backoffs keeps the backoff of each model. It is lost with the process: the first failure after that is replaced at
// once, as any first one is.
type backoffs struct {
	mu sync.Mutex // guards of
	of map[types.NamespacedName]modelBackoff
}

type modelBackoff struct {
	uid types.UID
	b   backoff
}

func (r *Reconciler) backoffOf(m *v1alpha1.InferenceModel) backoff {
	r.backoffs.mu.Lock()
	defer r.backoffs.mu.Unlock()
	if kept := r.backoffs.of[client.ObjectKeyFromObject(m)]; kept.uid == m.UID {
		return kept.b
	}
	return backoff{}
}

func (r *Reconciler) keepBackoff(m *v1alpha1.InferenceModel, b backoff) {
	r.backoffs.mu.Lock()
	defer r.backoffs.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	if b.failures == 0 {
		delete(r.backoffs.of, key)
		return
	}
	if r.backoffs.of == nil {
		r.backoffs.of = map[types.NamespacedName]modelBackoff{}
	}
	r.backoffs.of[key] = modelBackoff{m.UID, b}
}

func (b *backoffs) drop(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, key)
}
