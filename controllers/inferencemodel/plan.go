package inferencemodel

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// Why a worker is deleted.
const (
	whyEnded    = "its pod ended"
	whyOutdated = "it has an older revision and is not in the ring"
	whyRollout  = "it has an older revision"
	whySurplus  = "fewer workers are wanted"
)

// wanted is what a plan has to reach.
type wanted struct {
	replicas, surge, unavailable int
	// clamped says which bound made replicas another number than the one asked for; "" when none did.
	clamped string
	// revision that workers should have; "" when it can't be known, and then no worker is made or replaced.
	revision string
}

// want reads from m how many workers it should have, and how they may be replaced.
func want(m *v1alpha1.InferenceModel, revision string) wanted {
	lo, hi := int(or(m.Spec.Scaling.MinReplicas, 1)), int(or(m.Spec.Scaling.MaxReplicas, 4))
	asked := int(or(m.Spec.Replicas, 1))
	return wanted{
		replicas:    min(max(asked, lo), hi),
		clamped:     clamped(asked, lo, hi),
		surge:       int(or(m.Spec.Rollout.MaxSurge, 1)),
		unavailable: int(or(m.Spec.Rollout.MaxUnavailable, 0)),
		revision:    revision,
	}
}

// clamped says which of the bounds asked is beyond, or "".
func clamped(asked, lo, hi int) string {
	were := conditions.Count(asked, "was asked for", "were asked for")
	switch {
	case asked > hi:
		return fmt.Sprintf("%s; scaling.maxReplicas is %d", were, hi)
	case asked < lo:
		return fmt.Sprintf("%s; scaling.minReplicas is %d", were, lo)
	}
	return ""
}

// or is *p, or the schema's default where an object lacks the field.
func or(p *int32, byDefault int32) int32 {
	if p == nil {
		return byDefault
	}
	return *p
}

// plan is what must be done next, deletions first.
type plan struct {
	remove []removal
	// create holds the ordinals of the workers to make.
	create []int
	// retry is when a worker that is kept for now may be replaced; zero when none waits.
	retry time.Time
	// backoff is the count after this plan.
	backoff backoff
}

type removal struct {
	w   worker
	why string
}

// decide makes the plan. Pods that are being deleted neither count nor are touched, but keep their ordinals, and so do
// strangers: pods with the model's label that it does not control.
//
//   - A pod that ended is deleted and replaced, again and again with growing delays; until it is due it fills its place.
//   - A worker of an older revision goes at once when it never was available, so that a mended object needs no help, and
//     after comeback when it no longer is: a crash alone does not trade a good worker for one that may be broken. Of the
//     others as many go as leave no fewer than replicas - unavailable.
//   - Surplus goes in the order of victims.
//   - New workers are made up to replicas, and up to replicas + surge with those of older revisions counted in.
func decide(want wanted, workers, strangers []worker, b backoff, now time.Time) plan {
	p := plan{backoff: b.at(now, want.revision, workers)}
	var current, old []worker
	places := 0 // filled by pods that ended and are not due
	for _, w := range workers {
		outdated := want.revision != "" && w.revision != want.revision
		switch {
		case w.terminating:
		case w.ended && (outdated || want.revision == ""):
			p.remove = append(p.remove, removal{w, whyEnded})
		case w.ended:
			if p.replace(w, now) {
				continue
			}
			places++
		case outdated && p.hopeless(w, now):
			p.remove = append(p.remove, removal{w, whyOutdated})
		case outdated:
			old = append(old, w)
		default:
			current = append(current, w)
		}
	}
	current = p.shrink(current, want.replicas)
	old = p.rollOut(current, old, want)
	if want.revision != "" {
		missing := want.replicas - len(current) - places
		room := want.replicas + want.surge - len(current) - len(old) - places
		p.create = freeOrdinals(slices.Concat(workers, strangers), min(missing, room))
	}
	return p
}

// replace removes the ended pod w when that is due, and otherwise notes when it will be.
func (p *plan) replace(w worker, now time.Time) bool {
	if due := p.backoff.due(w.created); due.After(now) {
		if p.retry.IsZero() || due.Before(p.retry) {
			p.retry = due
		}
		return false
	}
	p.remove = append(p.remove, removal{w, whyEnded})
	p.backoff = p.backoff.replaced(w.created, now)
	return true
}

// comeback is how long a worker of an older revision that was in the ring has to return to it, after a crash for example.
const comeback = 30 * time.Second

// hopeless reports whether w, of an older revision, will not serve again; while that is open, it notes when it will be
// decided.
func (p *plan) hopeless(w worker, now time.Time) bool {
	if w.available || w.lost.IsZero() {
		return !w.available
	}
	due := w.lost.Add(comeback)
	if due.After(now) && (p.retry.IsZero() || due.Before(p.retry)) {
		p.retry = due
	}
	return !due.After(now)
}

// shrink removes the surplus of current and returns the rest.
func (p *plan) shrink(current []worker, replicas int) []worker {
	surplus := len(current) - replicas
	if surplus <= 0 {
		return current
	}
	slices.SortStableFunc(current, victims)
	for _, w := range current[:surplus] {
		p.remove = append(p.remove, removal{w, whySurplus})
	}
	return current[surplus:]
}

// rollOut removes as many available workers of older revisions as may go now and returns the rest.
func (p *plan) rollOut(current, old []worker, want wanted) []worker {
	available := 0
	for _, w := range slices.Concat(current, old) {
		if w.available {
			available++
		}
	}
	gone := min(max(available-max(want.replicas-want.unavailable, 0), 0), len(old))
	slices.SortStableFunc(old, victims)
	for _, w := range old[:gone] {
		p.remove = append(p.remove, removal{w, whyRollout})
	}
	return old[gone:]
}

// victims orders workers by who goes first: not in the ring, fewest requests, youngest.
func victims(a, b worker) int {
	switch {
	case a.available != b.available && b.available:
		return -1
	case a.available != b.available:
		return 1
	}
	return cmp.Or(cmp.Compare(a.inFlight, b.inFlight), b.created.Compare(a.created), cmp.Compare(b.name, a.name))
}

// freeOrdinals returns the n lowest ordinals that no pod holds, one that is being deleted included.
func freeOrdinals(workers []worker, n int) []int {
	held := make(map[int]bool, len(workers))
	for _, w := range workers {
		if o, ok := desired.Ordinal(w.name); ok {
			held[o] = true
		}
	}
	var free []int
	for o := 0; len(free) < n; o++ {
		if !held[o] {
			free = append(free, o)
		}
	}
	return free
}
