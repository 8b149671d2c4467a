package inferencemodel

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/ringfleet/ringfleet/controllers/conditions"
)

// Event is one thing that the manager tells of a model, as `kubectl describe inferencemodel` shows it. The functions
// below are all there are.
type Event struct {
	// Type is Normal or Warning. Reason is what happened and Action what the manager did, each one CamelCase word.
	Type, Reason, Action string
	Note                 string
	// Related is the worker's pod, where there is one.
	Related runtime.Object
}

// maxNote is the longest note that the API server takes, in bytes.
const maxNote = 1024

// tell sends e about the object.
func tell(to events.EventRecorder, about runtime.Object, e Event) {
	to.Eventf(about, e.Related, e.Type, e.Reason, e.Action, "%s", conditions.Shorten(e.Note, maxNote))
}

// workerCreated: a worker pod was made.
func workerCreated(pod *corev1.Pod) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: "WorkerCreated", Action: "Create", Related: pod,
		Note: "created worker " + pod.Name}
}

// workerDeleted: a worker was told to finish its requests and go.
func workerDeleted(w worker, why string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: "WorkerDeleted", Action: "Delete", Related: w.pod,
		Note: fmt.Sprintf("deleted worker %s, which runs %s: %s", w.name, conditions.Count(w.inFlight, "request", "requests"), why)}
}

// workerEnded: a pod ended for good, was evicted or refused by its node, and was deleted.
func workerEnded(w worker) Event {
	why := join(w.pod.Status.Reason, w.pod.Status.Message)
	return Event{Type: corev1.EventTypeWarning, Reason: "WorkerEnded", Action: "Delete", Related: w.pod,
		Note: fmt.Sprintf("worker %s ended on node %s (%s) and was deleted", w.name, w.node, why)}
}

// workerRefused: the API server refuses a worker's pod.
func workerRefused(err error) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: "WorkerRefused", Action: "Create", Note: err.Error()}
}

// workerInRing: all routers have a worker in their rings, and its gate was opened.
func workerInRing(g gateChange) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: "WorkerInRing", Action: "OpenGate", Related: g.w.pod,
		Note: fmt.Sprintf("worker %s (instance %s) is in the ring of %s", g.w.name, g.instance, conditions.Count(g.routers, "router", "routers"))}
}

// workerLeftRing: the instance for which a worker's gate was open is gone.
func workerLeftRing(g gateChange) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: "WorkerInstanceGone", Action: "CloseGate", Related: g.w.pod,
		Note: fmt.Sprintf("instance %s of worker %s is gone", g.w.instance, g.w.name)}
}

// namesTaken: older models have names that this one claims.
func namesTaken(lost []taken) Event {
	var which []string
	for _, t := range lost {
		which = append(which, t.name+" ("+t.by+")")
	}
	return Event{Type: corev1.EventTypeWarning, Reason: "NamesTaken", Action: "Serve",
		Note: "older models have the names " + strings.Join(which, ", ")}
}

// memoryExceeded: what the spec asks for does not fit a worker's memory.
func memoryExceeded(message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: "MemoryExceeded", Action: "Plan", Note: message}
}

// rolloutStarted: the spec, the pool or the installation changed in a way that needs other workers.
func rolloutStarted(from, to string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: "RolloutStarted", Action: "RollOut",
		Note: fmt.Sprintf("workers of revision %s are replaced by revision %s", from, to)}
}
