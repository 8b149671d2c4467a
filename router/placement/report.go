package placement

import "time"

// report takes in what the instance says of itself. named counts the ids that it names, and is used up. It returns how
// many of its requests are this router's, and how many there are; ok is false where its list of ids is not whole.
func (l *live) report(r *Load, named map[string]int, now time.Time) (mine, all int, ok bool) {
	all = max(0, r.Running) + max(0, r.Waiting)
	ok = len(r.RequestIDs) < mostIDs && len(r.RequestIDs) >= all
	l.fresh = float64(l.freshWork)
	held, waiting := l.cover(named, ok)
	mine = held.requests
	for i, id := range l.ended.ids {
		if named[id] > 0 {
			named[id]--
			l.ended.ids[i] = ""
			mine++
		}
	}
	l.others = max(0, all-mine)
	l.seats, l.adapters = max(0, r.Seats), r.Adapters
	l.queue(r, held.tokens, min(l.others, max(0, r.Waiting-waiting)), now)
	l.total, l.used, l.freed = tokens(r.KVTotal), tokens(r.KVUsed)+tokens(r.Backlog), 0
	l.measure(r)
	return mine, all, ok
}

// covered are requests of this router that a report holds, and the tokens of theirs that are still to be computed.
type covered struct {
	requests int
	tokens   int64
}

// cover marks the requests that the report holds: those that it names, and where its list is not whole those that the
// worker has accepted. It also counts those of them that have no first token.
func (l *live) cover(named map[string]int, whole bool) (c covered, waiting int) {
	for t := l.open; t != nil; t = t.next {
		id := t.decision.RequestID
		switch {
		case named[id] > 0:
			named[id]--
		case whole || !t.accepted:
			continue
		}
		c.requests++
		if t.first.IsZero() {
			c.tokens += t.uncached
			waiting++
		}
		if t.reported {
			continue
		}
		t.reported = true
		l.freshNeed -= t.need
		if t.first.IsZero() {
			l.freshWork -= t.uncached
		}
	}
	return c, waiting
}

// queue corrects the queue of prompts. mine is the tokens of this router's requests that the report holds. A worker that
// does not say how much there is to compute has at least what this router sent it, as far as it can't have done that yet,
// and a usual prompt for each request of others that waits.
func (l *live) queue(r *Load, mine int64, othersWait int, now time.Time) {
	if r.Backlog != nil {
		backlog := tokens(r.Backlog)
		next := float64(backlog + l.freshWork)
		l.foreign, l.latest = max(0, backlog-mine), 0
		if l.others > 0 {
			l.foreign = backlog // this router's part of it is less than it was
			l.latest = max(0, next-l.ahead(now))
		}
		l.turned.add(l.latest, 1, turnedMemory)
		l.work, l.at = next, now
		l.cap()
		return
	}
	l.latest = 0
	l.drain(now)
	l.foreign = 0
	l.cap()
	l.foreign = int64(othersWait) * usualPrompt
	l.work += float64(l.foreign)
}

// measure learns from the rates that an instance with work reports; those of one without are of times gone by.
func (l *live) measure(r *Load) {
	if r.Running <= 0 {
		return
	}
	if r.Prefill != nil && *r.Prefill >= 1/slowest && *r.Prefill <= 1/fastest {
		l.rated = true
		l.learn(1 / *r.Prefill, reportWeight)
	}
	if r.Decode != nil && *r.Decode > 0 {
		l.pause(float64(r.Running) / *r.Decode)
	}
}

// learn takes in a measured pace of prompts, in seconds a token, that weighs so many tokens. One that is far from what is
// known moves it only so far: a single stall says little.
func (l *live) learn(pace, weight float64) {
	if l.learnt.weight >= paceBase {
		pace = min(max(pace, l.learnt.value/mostChange), l.learnt.value*mostChange)
	}
	l.learnt.add(min(max(pace, fastest), slowest), weight, paceMemory)
}

// pause takes in a measured time from one token of an answer to the next, in seconds.
func (l *live) pause(seconds float64) {
	l.step.add(min(max(seconds, fastest), slowest), 1, stepMemory)
}

// tokens are a count of a report, 0 where it is absent.
func tokens(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(min(*n, mostTokens))
}
