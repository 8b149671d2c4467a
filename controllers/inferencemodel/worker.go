package inferencemodel

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// worker is what was observed of one worker pod.
type worker struct {
	pod *corev1.Pod

	name     string
	uid      types.UID
	node     string
	revision string
	created  time.Time

	// terminating: the pod is being deleted. ended: it is in a phase that it never leaves.
	terminating, ended bool
	// container is the id of the container that runs now; "" when none does.
	container string
	// gated: the in-ring gate is True. instance and gatedContainer are for whom it was set.
	gated                    bool
	instance, gatedContainer string
	// available: the gate is True and the pod is Ready. lost is when it ceased to be, zero when it never was.
	available bool
	lost      time.Time

	// report is the youngest word of the worker itself, when there is one.
	report   WorkerView
	reported bool
	inFlight int
}

// live workers count: they are, or are on their way to be, what the model wants.
func (w worker) live() bool { return !w.terminating && !w.ended }

// loaded reports whether the worker holds the model: it serves, or has said so lately. What a worker on a lost node said
// last is no news.
func (w worker) loaded() bool {
	return w.live() && w.container != "" && (w.available || w.reported && w.report.Loaded && w.report.Age < SilentAfter)
}

// serves reports whether requests reach the worker: it is available, and not missing from every ring that is known.
func (w worker) serves(v View) bool {
	if !w.available || !w.live() {
		return false
	}
	asked := false
	for _, r := range v.Routers {
		if r.Answered {
			asked = true
			if r.Workers[w.uid].InRing {
				return true
			}
		}
	}
	return !asked
}

// observeWorker judges one pod by itself and by what was said of it.
func observeWorker(pod *corev1.Pod, v View) worker {
	w := worker{
		pod:            pod,
		name:           pod.Name,
		uid:            pod.UID,
		node:           pod.Spec.NodeName,
		revision:       pod.Labels[v1alpha1.LabelRevision],
		created:        pod.CreationTimestamp.Time,
		terminating:    pod.DeletionTimestamp != nil,
		ended:          pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded,
		gated:          isTrue(pod, v1alpha1.GateInRing),
		instance:       pod.Annotations[v1alpha1.AnnotationInRingInstance],
		gatedContainer: pod.Annotations[v1alpha1.AnnotationInRingContainer],
		inFlight:       v.inFlight(pod.UID),
	}
	if c := containerStatus(pod); c != nil && c.State.Running != nil {
		w.container = c.ContainerID
	}
	w.report, w.reported = v.newest(pod.UID)
	w.available = w.gated && w.gatedContainer == w.container && isTrue(pod, corev1.PodReady) && w.live()
	if !w.available {
		w.lost = lostAt(pod)
	}
	return w
}

// lostAt is when a pod that is not available ceased to be: when its gate closed, or else its readiness.
func lostAt(pod *corev1.Pod) time.Time {
	gate, ready := condition(pod, v1alpha1.GateInRing), condition(pod, corev1.PodReady)
	switch {
	case gate == nil:
		return time.Time{}
	case gate.Status != corev1.ConditionTrue || ready == nil:
		return gate.LastTransitionTime.Time
	default:
		return ready.LastTransitionTime.Time
	}
}

func isTrue(pod *corev1.Pod, t corev1.PodConditionType) bool {
	c := condition(pod, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// containerStatus is the status of the container that runs the worker; nil before the kubelet has one.
func containerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == desired.Container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// blocking is the container, of those before and beside the worker's, that the pod waits for: one that has not ended well
// where it must, or an engine that can't run; nil when there is none.
func blocking(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		ended := c.State.Terminated
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason == "PodInitializing": // its turn has not come
			return nil
		case c.Name == desired.EngineContainer && c.State.Running != nil, c.Name != desired.EngineContainer && ended != nil && ended.ExitCode == 0:
		default:
			return c
		}
	}
	return nil
}
