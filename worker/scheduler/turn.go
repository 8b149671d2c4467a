package scheduler

import "slices"

// turnSteps is how many steps an adapter has while others wait. Changing it costs libllama a new graph, so it is not done
// at every step; a stream waits for at most so many steps of each other adapter that is in use.
const turnSteps = 8

// adapter is a change of the model under which requests run; the one without a name is the model itself.
type adapter struct {
	name   string
	key    string // parts the cache: another file under the same name is another adapter
	inside int    // requests
	served int64  // the step in which its last turn ended
}

// loaded returns the names of the adapters, sorted.
func (s *state) loaded() []string {
	if len(s.adapters) == 1 {
		return nil // the model itself
	}
	names := make([]string, 0, len(s.adapters)-1)
	for name := range s.adapters {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// turn says whose steps are run: a step can have one adapter only.
type turn struct {
	now  *adapter
	left int
}

// next returns the adapter of the next step: the one whose turn it is while it has work, then the one of the others whose
// last turn is the longest ago. active is in order, so of those that never had one the first comes first.
func (t *turn) next(active []*run, step int64) *adapter {
	var other *adapter
	here := false
	for _, r := range active {
		switch a := r.request.adapter; {
		case a == t.now:
			here = true
		case other == nil || a.served < other.served:
			other = a
		}
	}
	switch {
	case other == nil:
		t.left = turnSteps
	case here && t.left > 0:
	default:
		t.now.served = step
		t.now, t.left = other, turnSteps
	}
	t.left--
	return t.now
}
