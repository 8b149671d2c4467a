// Package placement decides which worker a request goes to: the owner of its affinity key on the ring of the model's
// workers, or the next on the ring's walk when that one is excluded or suspect. A View is an immutable value, so a
// request decides without a lock. Who is in the ring is package heartbeat's verdict; nothing here calls a worker.
package placement

import (
	"slices"

	"github.com/ringfleet/ringfleet/router/ring"
)

// Worker is a candidate of a model.
type Worker struct {
	Pod      string // name; the member id of the ring, as it outlives restarts of the container
	Address  string // host:port of its gRPC server
	Instance string
	Revision string
	Loaded   bool // says that it has loaded the model
	InRing   bool // may take requests
	Suspect  bool // has just refused one: taken only when nobody else is left
}

// View is the workers of one model at one moment. It never changes.
type View struct {
	// ModelUID is the UID of the InferenceModel.
	ModelUID string
	ring     *ring.Ring
	nodes    int
	workers  map[string]Worker
	loaded   int
}

// NewView returns the view of a model's workers, with virtualNodes points on the ring for each that is in it. It takes
// over the ring of before, a view of the same model or nil, when that has the same members.
func NewView(before *View, modelUID string, workers []Worker, virtualNodes int) *View {
	v := &View{ModelUID: modelUID, nodes: virtualNodes, workers: make(map[string]Worker, len(workers))}
	var members []string
	for _, w := range workers {
		v.workers[w.Pod] = w
		if w.InRing {
			members = append(members, w.Pod)
		}
		if w.Loaded {
			v.loaded++
		}
	}
	slices.Sort(members)
	if before != nil && before.nodes == virtualNodes && slices.Equal(before.ring.Members(), members) {
		v.ring = before.ring
		return v
	}
	v.ring = ring.New(members, virtualNodes)
	return v
}

// RingVersion is a hash of the ring's members and weights: equal on every router that has the same.
func (v *View) RingVersion() uint64 { return v.ring.Version() }

// InRing is the number of workers in the ring.
func (v *View) InRing() int { return v.ring.Len() }

// Loaded is the number of workers that say that they have loaded the model, in the ring or not.
func (v *View) Loaded() int { return v.loaded }

// Candidates is the number of workers.
func (v *View) Candidates() int { return len(v.workers) }

// Place returns the first worker on the ring's walk from key that is neither excluded, by its pod's name, nor suspect;
// else the first suspect one that is not excluded. The error is a *NoWorkerError. A nil view has no workers.
func Place(v *View, key []byte, exclude ...string) (Worker, error) {
	if v == nil {
		return Worker{}, &NoWorkerError{}
	}
	var suspect *Worker
	for pod := range v.ring.Walk(key) {
		if slices.Contains(exclude, pod) {
			continue
		}
		w := v.workers[pod]
		if !w.Suspect {
			return w, nil
		}
		if suspect == nil {
			suspect = &w
		}
	}
	if suspect != nil {
		return *suspect, nil
	}
	return Worker{}, &NoWorkerError{Candidates: len(v.workers), Loaded: v.loaded, InRing: v.InRing(), Excluded: len(exclude)}
}
