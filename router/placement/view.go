package placement

import (
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/ring"
)

// View is the workers of one model at one moment. What it says never changes. A nil view is one without workers.
type View struct {
	// ModelUID is the UID of the InferenceModel.
	ModelUID string
	ring     *ring.Ring
	nodes    int                // virtual ones, as asked for
	members  []*member          // those in the ring, as ring.Members has them
	pods     map[string]*member // all, by name
	loaded   int
	sound    int    // members that are not suspect
	state    *state // of their work; not part of what never changes
}

// member is a worker, with what is known of its instance. It does not change.
type member struct {
	Worker
	live *live
	slot prefix.Slot
}

// process is what its work is kept by.
func (m *member) process() Process { return Process{m.Pod, m.Instance} }

// RingVersion is a hash of the ring's members and weights: equal on every router that has the same.
func (v *View) RingVersion() uint64 {
	if v == nil {
		return 0
	}
	return v.ring.Version()
}

// InRing is the number of workers in the ring.
func (v *View) InRing() int {
	if v == nil {
		return 0
	}
	return v.ring.Len()
}

// Sound is the number of workers in the ring that are not suspect.
func (v *View) Sound() int {
	if v == nil {
		return 0
	}
	return v.sound
}

// Loaded is the number of workers that say that they have loaded the model, in the ring or not.
func (v *View) Loaded() int {
	if v == nil {
		return 0
	}
	return v.loaded
}

// Candidates is the number of workers.
func (v *View) Candidates() int {
	if v == nil {
		return 0
	}
	return len(v.pods)
}

// Worker returns the worker of that name, in the ring or not; false where there is none.
func (v *View) Worker(pod string) (Worker, bool) {
	if v == nil || v.pods[pod] == nil {
		return Worker{}, false
	}
	return v.pods[pod].Worker, true
}

// nobody is the error of a request that nobody can take.
func (v *View) nobody(q *Request, unable, full int) error {
	return &NoWorkerError{
		Candidates: v.Candidates(), Loaded: v.Loaded(), InRing: v.InRing(), Excluded: len(q.Exclude), Unable: unable, Full: full,
	}
}

// arrange fills a view that has its pods with the members in the ring, and makes the ring from the one of before, a view
// of the same model or nil.
func (v *View) arrange(before *View) {
	for _, m := range v.pods {
		if m.Loaded {
			v.loaded++
		}
		if m.InRing {
			v.members = append(v.members, m)
			if !m.Suspect {
				v.sound++
			}
		}
	}
	slices.SortFunc(v.members, func(a, b *member) int { return strings.Compare(a.Pod, b.Pod) })
	all := make([]ring.Member, len(v.members))
	for i, m := range v.members {
		all[i] = ring.Member{Name: m.Pod, Weight: m.Weight}
	}
	if before == nil || before.nodes != v.nodes {
		v.ring = ring.New(all, v.nodes)
		return
	}
	var gone []string
	for _, m := range before.members {
		if now := v.pods[m.Pod]; now == nil || !now.InRing {
			gone = append(gone, m.Pod)
		}
	}
	v.ring = before.ring.Change(all, gone)
}

// share is the weight of a worker as the bound on load takes it.
func (w *Worker) share() int {
	if w.Weight < 1 {
		return 100
	}
	return min(w.Weight, ring.MaxWeight)
}
