package inferencemodel

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// routerView is what the reconciler wants to know from the routers of a namespace. Look asks every Ready router, and a
// worker itself only when no router has heard of it; what did not answer in time is in the view as silent. An error
// means that it could not be found out whom to ask.
type routerView interface {
	Look(ctx context.Context, namespace string) (View, error)
}

// View is what routers, and workers that no router has, said at one moment.
type View struct {
	// Routers are all router pods of the namespace that Kubernetes calls Ready.
	Routers []RouterView
	// Workers are the answers of workers that were asked themselves, by the UID of their pod.
	Workers map[types.UID]WorkerView
}

// RouterView is what one router said.
type RouterView struct {
	// Pod is the name of the router's pod.
	Pod string
	// Answered is true when the router answered this time; Workers is empty otherwise.
	Answered bool
	// Silence is how long its calls have failed; 0 when it answered.
	Silence time.Duration
	// Error is why the call failed.
	Error string
	// Workers are those that the router knows, in its ring or not, by the UID of their pod.
	Workers map[types.UID]WorkerView
}

// WorkerView is what a router, or a worker itself, said of a worker.
type WorkerView struct {
	// Instance is the id of the worker's engine process; "" when it has never reported.
	Instance string
	// InRing is true while the router places requests on that instance.
	InRing bool
	// Loaded is the worker's own model_loaded.
	Loaded bool
	// Stage is "" before the first report.
	Stage v1alpha1.WorkerStage
	// Percent of the stage; nil when unknown.
	Percent *int32
	// Reason and Message are the worker's own, Reason only when it failed.
	Reason, Message string
	// InFlight is the requests of this router that run on the worker.
	InFlight int
	// Running is all requests that the worker runs or keeps waiting, by its own report.
	Running int
	// Age is the time since its last report.
	Age time.Duration
	// Shape is its model's, once it has read the weights' head; nil before, and where it can't be read.
	Shape *workerv1.ModelShape
	// LastError is why the last heartbeat failed.
	LastError string
}

// SilentAfter is how long a router may leave calls unanswered, or a report may be old, before it is left out.
const SilentAfter = 10 * time.Second

// heard returns the routers whose word counts: all that are not silent for long.
func (v View) heard() []RouterView {
	var rs []RouterView
	for _, r := range v.Routers {
		if r.Answered || r.Silence < SilentAfter {
			rs = append(rs, r)
		}
	}
	return rs
}

// silent returns the names of the routers that are left out.
func (v View) silent() []string {
	var names []string
	for _, r := range v.Routers {
		if !r.Answered && r.Silence >= SilentAfter {
			names = append(names, r.Pod)
		}
	}
	return names
}

// newest returns the youngest report of a worker that anybody has.
func (v View) newest(pod types.UID) (WorkerView, bool) {
	best, found := v.Workers[pod]
	found = found && best.Instance != ""
	for _, r := range v.Routers {
		if w, ok := r.Workers[pod]; ok && w.Instance != "" && (!found || w.Age < best.Age) {
			best, found = w, true
		}
	}
	return best, found
}

// inFlight is how many requests run on a worker: by its own count, and at least those that routers have sent it.
func (v View) inFlight(pod types.UID) int {
	sent := 0
	for _, r := range v.Routers {
		sent += r.Workers[pod].InFlight
	}
	report, _ := v.newest(pod)
	return max(sent, report.Running)
}
