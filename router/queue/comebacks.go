package queue

import "time"

// soonest and farthest are the first and the last second that a client may be told.
const soonest, farthest = 1, 60

// comebacks is who comes back when, of those who were told: the seconds to come, each with the work that was told to come
// in it. A second has room for as much as the model does in one, to the next half of a request. Those that have passed are
// forgotten, whether anybody came or not, and nobody is moved by more than a fifth of the time that it has to wait: those
// who never come delay nobody for long.
type comebacks struct {
	began time.Time
	first int64                       // the present second, since began
	work  [farthest + 1]time.Duration // of the second n, at n modulo the length
}

// book is when one that has to wait, and whose work takes the time each, is to come back, in whole seconds: in the first
// second from then to a fifth later that has room for it, or where none has, in the one with the least work.
func (c *comebacks) book(wait, each time.Duration, now time.Time) time.Duration {
	c.advance(now)
	from, to := told(wait), told(wait+wait/5)
	best := from
	for s := from; s <= to; s++ {
		if *c.at(s)+each/2 <= time.Second {
			best = s
			break
		}
		if *c.at(s) < *c.at(best) {
			best = s
		}
	}
	return c.add(best, each)
}

// spread is when one is to come back that would have to wait for longer than any client is told: of two seconds that
// chance draws from earliest on, in the one with less work.
func (c *comebacks) spread(each time.Duration, now time.Time, chance func() float64) time.Duration {
	c.advance(now)
	draw := func() int64 { return told(earliest) + int64(chance()*float64(farthest+1-told(earliest))) }
	a, b := draw(), draw()
	if *c.at(b) < *c.at(a) {
		a = b
	}
	return c.add(a, each)
}

// told is a time in whole seconds that a client may be told: not less than d, but where that is beyond the farthest.
func told(d time.Duration) int64 {
	return min(max(int64((d+time.Second-1)/time.Second), soonest), farthest)
}

func (c *comebacks) add(second int64, each time.Duration) time.Duration {
	*c.at(second) += each
	return time.Duration(second) * time.Second
}

// at is the work of a second from now on.
func (c *comebacks) at(second int64) *time.Duration {
	return &c.work[(c.first+second)%int64(len(c.work))]
}

// advance forgets the seconds that have passed.
func (c *comebacks) advance(now time.Time) {
	if c.began.IsZero() {
		c.began = now
	}
	to := int64(now.Sub(c.began) / time.Second)
	if to-c.first >= int64(len(c.work)) {
		c.work, c.first = [farthest + 1]time.Duration{}, to
	}
	for ; c.first < to; c.first++ {
		*c.at(0) = 0
	}
}
