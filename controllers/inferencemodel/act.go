package inferencemodel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
	"github.com/ringfleet/ringfleet/controllers/step"
)

// errGone ends a reconcile whose model turns out to be deleted: the cache was behind.
var errGone = errors.New("the model is gone or being deleted")

// confirm asks the API server itself whether the model is still wanted. Everything that creates calls it first: after a
// deletion the cache may show that children are gone before it shows that their owner is.
func (r *Reconciler) confirm(ctx context.Context, s *scope) error {
	if s.confirmed {
		return nil
	}
	var live v1alpha1.InferenceModel
	key := client.ObjectKeyFromObject(s.model)
	switch err := r.Live.Get(ctx, key, &live); {
	case apierrors.IsNotFound(err):
		return errGone
	case err != nil:
		return fmt.Errorf("get InferenceModel %s: %w", key, err)
	case live.UID != s.model.UID || live.DeletionTimestamp != nil:
		return errGone
	}
	s.confirmed = true
	return nil
}

// applyService makes the headless Service what it should be.
func (r *Reconciler) applyService(ctx context.Context, s *scope) error {
	var live corev1.Service
	key := client.ObjectKey{Namespace: s.model.Namespace, Name: desired.ServiceName(s.model)}
	if err := r.Client.Get(ctx, key, &live); apierrors.IsNotFound(err) {
		if err := r.confirm(ctx, s); err != nil {
			return err
		}
	}
	_, err := step.Apply(ctx, r.Client, &live, desired.Service(s.model), corev1ac.ExtractService)
	return err
}

// applyBudget makes the disruption budget what it should be.
func (r *Reconciler) applyBudget(ctx context.Context, s *scope) error {
	var live policyv1.PodDisruptionBudget
	want := desired.DisruptionBudget(s.model, s.want.replicas)
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.model.Namespace, Name: *want.Name}, &live); apierrors.IsNotFound(err) {
		if err := r.confirm(ctx, s); err != nil {
			return err
		}
	}
	_, err := step.Apply(ctx, r.Client, &live, want, policyv1ac.ExtractPodDisruptionBudget)
	return err
}

// decide computes the revision and the plan.
func (r *Reconciler) decide(_ context.Context, s *scope) error {
	revision := ""
	if s.pool != nil && s.pool.DeletionTimestamp == nil {
		var err error
		if revision, err = desired.Revision(s.model, r.inputs(s)); err != nil {
			return err
		}
	}
	s.want = want(s.model, revision)
	s.plan = decide(s.want, s.workers, s.strangers, r.backoffOf(s.model), s.now)
	return nil
}

func (r *Reconciler) inputs(s *scope) desired.Inputs {
	return desired.Inputs{
		Image: r.WorkerImage, CUDAImage: r.WorkerCUDAImage, PullPolicy: r.PullPolicy, Pool: s.pool, Revision: s.want.revision,
	}
}

// remove deletes the workers that the plan names, each only as it was observed.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	for _, d := range s.plan.remove {
		only := client.Preconditions{UID: new(d.w.uid), ResourceVersion: new(d.w.pod.ResourceVersion)}
		err := r.Client.Delete(ctx, d.w.pod, only)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete pod %s/%s: %w", d.w.pod.Namespace, d.w.name, err)
		}
		if d.why == whyEnded {
			tell(r.Events, s.model, workerEnded(d.w))
		} else {
			tell(r.Events, s.model, workerDeleted(d.w, d.why))
		}
	}
	r.keepBackoff(s.model, s.plan.backoff)
	return nil
}

// create makes the workers that the plan names. A pod that exists already is one that the cache does not show yet, or never
// will. A pod that the API server refuses (quota, policy) ends the step without an error: it is tried again after a while.
func (r *Reconciler) create(ctx context.Context, s *scope) error {
	if len(s.plan.create) == 0 {
		return nil
	}
	if err := r.confirm(ctx, s); err != nil {
		return err
	}
	in := r.inputs(s)
	for _, in.Ordinal = range s.plan.create {
		pod := desired.Worker(s.model, in)
		err := r.Client.Create(ctx, pod, client.FieldOwner(step.Owner))
		switch {
		case err == nil:
			tell(r.Events, s.model, workerCreated(pod))
		case apierrors.IsAlreadyExists(err):
			s.rejected = cmp.Or(r.disowned(ctx, pod), s.rejected)
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return errGone
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			s.rejected = fmt.Errorf("the API server refuses pod %s: %w", pod.Name, err)
			tell(r.Events, s.model, workerRefused(s.rejected))
			return nil
		default:
			return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// disowned says why the pod that has the name of want is not seen as a worker: somebody took away a label that finds it. It
// is nil when the pod has them, and the cache is only behind.
func (r *Reconciler) disowned(ctx context.Context, want *corev1.Pod) error {
	var live corev1.Pod
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), &live); err != nil {
		return nil //nolint:nilerr // it is asked again soon
	}
	for _, label := range []string{v1alpha1.LabelModelUID, v1alpha1.LabelManagedBy} {
		if live.Labels[label] != want.Labels[label] {
			return fmt.Errorf("pod %s exists without the label %s=%s: give it that label back, or delete the pod", want.Name, label, want.Labels[label])
		}
	}
	return nil
}

// setGates opens and closes the in-ring gates that must change.
func (r *Reconciler) setGates(ctx context.Context, s *scope) error {
	for i := range s.workers {
		g, change := judgeGate(s.workers[i], s.view)
		if !change {
			continue
		}
		pod := s.workers[i].pod.DeepCopy()
		patch, err := gatePatch(g, metav1.NewTime(s.now))
		if err != nil {
			return err
		}
		err = r.Client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(step.Owner))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set the gate of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		s.workers[i] = observeWorker(pod, s.view)
		if g.opens() {
			tell(r.Events, s.model, workerInRing(g))
		} else {
			tell(r.Events, s.model, workerLeftRing(g))
		}
	}
	return nil
}

// gatePatch is the strategic merge patch of a pod's status that makes g true. It holds for the pod with that UID only,
// and touches nothing that the kubelet writes. The annotations travel with it, so that an open gate and its instance never
// differ; a closed one keeps those of the instance that is gone.
func gatePatch(g gateChange, now metav1.Time) ([]byte, error) {
	c := corev1.PodCondition{
		Type: v1alpha1.GateInRing, Status: corev1.ConditionFalse, LastTransitionTime: now,
		Reason: "InstanceGone", Message: "the instance that routers had in their rings is gone",
	}
	meta := map[string]any{"uid": g.w.uid}
	if g.opens() {
		c.Status, c.Reason = corev1.ConditionTrue, "InRing"
		c.Message = fmt.Sprintf("instance %s is in the ring of %s", g.instance, conditions.Count(g.routers, "router", "routers"))
		meta["annotations"] = map[string]string{
			v1alpha1.AnnotationInRingInstance:  g.instance,
			v1alpha1.AnnotationInRingContainer: g.container,
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": meta,
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the gate of pod %s: %w", g.w.name, err)
	}
	return patch, nil
}
