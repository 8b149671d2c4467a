package heartbeat

import (
	"fmt"
	"time"
)

// What ejects a worker, and for how long.
const (
	// failuresToEject is how many requests in a row must fail.
	failuresToEject = 5
	// missesToEject is how many first-byte deadlines in a row must be missed.
	missesToEject = 3
	// MinStall is the least time without progress that ejects: the idle timeout that routers have by default, after which
	// the streams of such a worker are given up anyway.
	MinStall = 60 * time.Second
	// firstEjection is how long the first one lasts; the n-th lasts n times that, up to longestEjection.
	firstEjection   = 30 * time.Second
	longestEjection = 300 * time.Second
	// forgiveAfter is the time between two good answers for which n falls by one.
	forgiveAfter = time.Minute
)

// Outcome is how a request to a worker ended, as far as the worker is to be judged by it. What says nothing of the worker, as
// an end that the client chose or a full queue, is none. Where one connection breaks under many requests, that is one failure.
type Outcome int

const (
	// Good is an answer that came to its end.
	Good Outcome = iota
	// Failed is a request that failed there, or could not get there.
	Failed
	// NoFirstByte is a request without an answer at the first-byte deadline. It is a failure, too.
	NoFirstByte
)

// Cause is why an ejection begins or ends; one of a closed set of words.
type Cause string

const (
	// CauseFailures is 5 failures in a row.
	CauseFailures Cause = "Failures"
	// CauseNoFirstByte is 3 first-byte deadlines missed in a row.
	CauseNoFirstByte Cause = "NoFirstByte"
	// CauseNoProgress is a worker that says that requests run and computes no token.
	CauseNoProgress Cause = "NoProgress"
	// CauseOver ends an ejection because its time is over.
	CauseOver Cause = "Over"
	// CauseHalf ends one, or prevents it, because more than half of the ring's members would be out.
	CauseHalf Cause = "Half"
	// CauseInstance ends one because the worker is another process now, or no candidate any more.
	CauseInstance Cause = "Instance"
)

// Change is what happens to a worker by an ejection.
type Change int

const (
	// Ejected says that it is passed over from now on.
	Ejected Change = iota
	// Returned says that it is no longer passed over.
	Returned
	// Spared says that it should be ejected and stays, because half of the ring's members are out already. It is told
	// once, until the worker is sound again or leaves.
	Spared
)

// String returns the change's name.
func (c Change) String() string {
	switch c {
	case Returned:
		return "Returned"
	case Spared:
		return "Spared"
	}
	return "Ejected"
}

// Ejection is one change.
type Ejection struct {
	ModelUID, Pod, Instance string
	Change                  Change
	Cause                   Cause
	Why                     string        // a few words for people
	For                     time.Duration // how long it lasts, where it begins
	Times                   int           // what n is now
}

// Ejector judges the members of one model's ring by how requests fare there, which a heartbeat can't tell: who keeps
// failing is passed over for a while. It never changes who is in the ring, and it never passes over more than half of
// the ring's members, rounded down, so never the only one. Beyond that half it spares: those out first stay out, and
// who is due later stays in. Five failures, 30 s and 300 s are those of Envoy's outlier detection; its share of
// the members is a tenth. It isn't safe for concurrent use. Times may not go backwards.
type Ejector struct {
	stall, gap time.Duration
	workers    map[string]*conduct // by pod

	inRing, out int // members of the ring, and the ejected ones of these
}

// conduct is what is known of one instance.
type conduct struct {
	instance         string
	inRing           bool
	failures, misses int // in a row

	tokens   uint64        // computed, by its last report
	busy     bool          // that report had tokens, and running requests
	reported time.Time     // when it came
	stalled  time.Duration // without progress

	until  time.Time // when its ejection ends; zero when it isn't ejected
	times  int       // n
	good   time.Time // first good answer after the last ejection, moved on with each forgiveness; zero before
	spared bool
}

// NewEjector returns an ejector that knows nobody. A worker is stalled after the time of stall without progress, at
// least MinStall; the time between two of its reports counts up to gap.
func NewEjector(stall, gap time.Duration) *Ejector {
	e := &Ejector{workers: map[string]*conduct{}}
	e.Configure(stall, gap)
	return e
}

// Configure changes the numbers; what was counted stays.
func (e *Ejector) Configure(stall, gap time.Duration) { e.stall, e.gap = max(stall, MinStall), gap }

// Ejected reports whether pod is passed over.
func (e *Ejector) Ejected(pod string) bool { return !e.Until(pod).IsZero() }

// Until is when the ejection of pod ends; zero when it isn't ejected.
func (e *Ejector) Until(pod string) time.Time {
	if c := e.workers[pod]; c != nil {
		return c.until
	}
	return time.Time{}
}

// Stand takes whether pod is a member of the ring, and its instance. Another instance voids all that is known. An ejection
// outlasts a stay outside the ring.
func (e *Ejector) Stand(pod, instance string, inRing bool) []Ejection {
	var changes []Ejection
	c := e.workers[pod]
	if c != nil && c.instance != instance {
		changes = e.Forget(pod)
		c = nil
	}
	if c == nil {
		c = &conduct{instance: instance}
		e.workers[pod] = c
	}
	if c.inRing == inRing {
		return changes
	}
	if inRing {
		c.inRing = true
		e.inRing++
		if !c.until.IsZero() {
			e.out++
		}
	} else {
		e.leave(c)
	}
	return append(changes, e.makeRoom()...)
}

// Forget drops all that is known of pod.
func (e *Ejector) Forget(pod string) []Ejection {
	c := e.workers[pod]
	if c == nil {
		return nil
	}
	var changes []Ejection
	if !c.until.IsZero() {
		changes = append(changes, e.comeBack(pod, c, CauseInstance, "it is another process, or gone"))
	}
	if c.inRing {
		e.leave(c)
	}
	delete(e.workers, pod)
	return append(changes, e.makeRoom()...)
}

// Outcome takes the end of a request. It counts for the present instance only, and only while it is in the ring and not
// ejected: what was under way when an ejection began says nothing of the time after it.
func (e *Ejector) Outcome(now time.Time, pod, instance string, o Outcome) []Ejection {
	c := e.workers[pod]
	if c == nil || c.instance != instance || !c.inRing || !c.until.IsZero() {
		return nil
	}
	switch o {
	case Good:
		c.failures, c.misses = 0, 0
		c.forgive(now)
	case NoFirstByte:
		c.failures, c.misses = c.failures+1, c.misses+1
	default:
		c.failures++
	}
	return e.weigh(now, pod, c)
}

// Progress takes what a report of the present instance says: how many requests run, and how many tokens have been
// computed since the engine started; nil is unknown and never ejects. However late a report comes, it adds at most the
// gap to the time without progress: a router that was itself stopped for a while blames nobody.
func (e *Ejector) Progress(now time.Time, pod string, running uint32, tokens *uint64) []Ejection {
	c := e.workers[pod]
	if c == nil {
		return nil
	}
	busy := tokens != nil && running > 0
	if busy && c.busy && *tokens == c.tokens {
		c.stalled += min(now.Sub(c.reported), e.gap)
	} else {
		c.stalled = 0
	}
	c.busy, c.reported = busy, now
	if tokens != nil {
		c.tokens = *tokens
	}
	return e.weigh(now, pod, c)
}

// Tick ends the ejection of pod when its time is over. A worker that still makes no progress is ejected again at once.
func (e *Ejector) Tick(now time.Time, pod string) []Ejection {
	c := e.workers[pod]
	if c == nil || c.until.IsZero() || now.Before(c.until) {
		return nil
	}
	back := e.comeBack(pod, c, CauseOver, "its time is over")
	if again := e.weigh(now, pod, c); len(again) > 0 && again[0].Change == Ejected {
		return again
	}
	return []Ejection{back}
}

// weigh ejects a worker that deserves it, or spares it.
func (e *Ejector) weigh(now time.Time, pod string, c *conduct) []Ejection {
	if !c.inRing || !c.until.IsZero() {
		return nil
	}
	cause, why := c.guilt(e.stall)
	switch {
	case cause == "":
		c.spared = false
		return nil
	case e.out+1 <= e.inRing/2:
		return []Ejection{e.eject(now, pod, c, cause, why)}
	case c.spared:
		return nil
	}
	c.spared = true
	return []Ejection{{Pod: pod, Instance: c.instance, Change: Spared, Cause: CauseHalf, Times: c.times,
		Why: fmt.Sprintf("%s; ejected of the ring's members: %d of %d", why, e.out, e.inRing)}}
}

// guilt says what c should be ejected for, or returns an empty cause.
func (c *conduct) guilt(stall time.Duration) (Cause, string) {
	switch {
	case c.misses >= missesToEject:
		return CauseNoFirstByte, fmt.Sprintf("missed the first-byte deadline %d times in a row", c.misses)
	case c.failures >= failuresToEject:
		return CauseFailures, fmt.Sprintf("failed %d requests in a row", c.failures)
	case c.stalled >= stall:
		return CauseNoProgress, fmt.Sprintf("has running requests and computed no token for %s", c.stalled.Round(time.Second))
	}
	return "", ""
}

func (e *Ejector) eject(now time.Time, pod string, c *conduct, cause Cause, why string) Ejection {
	c.times = min(c.times+1, int(longestEjection/firstEjection))
	lasts := time.Duration(c.times) * firstEjection
	c.until, c.good = now.Add(lasts), time.Time{}
	c.failures, c.misses, c.spared = 0, 0, false
	e.out++
	return Ejection{Pod: pod, Instance: c.instance, Change: Ejected, Cause: cause, Why: why, For: lasts, Times: c.times}
}

// comeBack ends the ejection of c.
func (e *Ejector) comeBack(pod string, c *conduct, cause Cause, why string) Ejection {
	c.until = time.Time{}
	if c.inRing {
		e.out--
	}
	return Ejection{Pod: pod, Instance: c.instance, Change: Returned, Cause: cause, Why: why, Times: c.times}
}

// leave takes c out of the ring: what was counted in a row is void there, its ejection is not.
func (e *Ejector) leave(c *conduct) {
	c.inRing, c.spared = false, false
	e.inRing--
	if !c.until.IsZero() {
		e.out--
	}
	c.failures, c.misses, c.busy, c.stalled = 0, 0, false, 0
}

// makeRoom ends ejections until no more than half of the ring's members are out; those that would end first go first.
func (e *Ejector) makeRoom() []Ejection {
	var changes []Ejection
	for e.out > e.inRing/2 {
		var first string
		for pod, c := range e.workers {
			if c.inRing && !c.until.IsZero() && (first == "" || c.sooner(pod, e.workers[first], first)) {
				first = pod
			}
		}
		changes = append(changes, e.comeBack(first, e.workers[first], CauseHalf, "more than half of the ring's members would be out"))
	}
	return changes
}

// sooner reports whether the ejection of c ends before that of other; names decide between equal ends.
func (c *conduct) sooner(pod string, other *conduct, otherPod string) bool {
	if c.until.Equal(other.until) {
		return pod < otherPod
	}
	return c.until.Before(other.until)
}

// forgive takes a good answer: for each forgiveAfter since the first one after the last ejection, n falls by one.
func (c *conduct) forgive(now time.Time) {
	if c.times == 0 {
		return
	}
	if c.good.IsZero() {
		c.good = now
		return
	}
	n := now.Sub(c.good) / forgiveAfter
	c.times = max(c.times-int(n), 0)
	c.good = c.good.Add(n * forgiveAfter)
}
