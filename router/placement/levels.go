package placement

import "time"

// Levels is how full a model's workers in the ring are: what they last reported, and what this router has sent them since.
type Levels struct {
	// KVPercent is how much of a worker's KV cache is taken or will be by what it has been sent, the mean of all of which
	// it is known, each 100 at most. -1: it is known of none.
	KVPercent float64
	// Running and Waiting are requests that have a seat and that wait for one; Seats how many of these there are, where
	// they are known.
	Running, Waiting, Seats int
	// InRing is the number of workers.
	InRing int
}

// Levels returns how full a model's workers are. A model that the board does not have has none.
func (b *Board) Levels(modelUID string, _ time.Time) Levels {
	v := b.View(modelUID)
	out := Levels{KVPercent: -1, InRing: v.InRing()}
	if out.InRing == 0 {
		return out
	}
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	known, taken := 0, 0.
	for _, m := range v.members {
		l := m.live
		running := l.load()
		if l.seats > 0 {
			running = min(running, l.seats)
		}
		out.Running += running
		out.Waiting += l.load() - running
		out.Seats += l.seats
		if l.total > 0 {
			known++
			taken += min(1, float64(l.held())/float64(l.total))
		}
	}
	if known > 0 {
		out.KVPercent = 100 * taken / float64(known)
	}
	return out
}
