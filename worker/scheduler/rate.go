package scheduler

import "time"

// window is how much work a rate looks back on, and grain how finely it forgets.
const (
	window = 10 * time.Second
	grain  = 100 * time.Millisecond
)

// rate is a number of tokens per second over the last ten seconds of work: time without work does not count.
type rate struct {
	spans []span // oldest first
	took  time.Duration
	sum   int
}

type span struct {
	took   time.Duration
	tokens int
}

// add books work that took so long.
func (r *rate) add(took time.Duration, tokens int) {
	if took <= 0 || tokens == 0 {
		return
	}
	r.took += took
	r.sum += tokens
	if n := len(r.spans); n > 0 && r.spans[n-1].took < grain {
		r.spans[n-1].took += took
		r.spans[n-1].tokens += tokens
	} else {
		r.spans = append(r.spans, span{took, tokens})
	}
	for len(r.spans) > 1 && r.took-r.spans[0].took >= window {
		r.took -= r.spans[0].took
		r.sum -= r.spans[0].tokens
		r.spans = r.spans[1:]
	}
}

// perSecond returns nil before the first work.
func (r *rate) perSecond() *float64 {
	if r.took == 0 {
		return nil
	}
	v := float64(r.sum) / r.took.Seconds()
	return &v
}
