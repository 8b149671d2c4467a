package heartbeat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// maxSample is the greatest sample that is believed, in seconds or times.
const maxSample = 1e6

// maxWeight is the greatest share of points on the ring, in per cent of a usual one.
const maxWeight = 1000

// errStopped ends a watcher's loop.
var errStopped = errors.New("stopped")

// watcher listens to one candidate, in one goroutine: it holds a Watch stream, opens another when that breaks or falls
// silent, and tells the detector. A broken stream is opened again after at most half an interval, a silent one at once,
// so that a worker is heard soon after it is back.
type watcher struct {
	table   *Table
	clock   clock.Clock
	log     logr.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	changed chan struct{} // holds a token when next should look at its times anew

	address string // the candidate's
	pod     string
	judge   *judge // its model's

	mu        sync.Mutex // guards what follows; held for field access and pure functions, and taken before the judge's
	candidate Candidate
	config    Config
	detector  *Detector
	report    *workerv1.Report
	expected  bool // the report is of the expected worker
	suspect   bool
	retired   bool // it may change nothing any more
	instance  string
	since     time.Time // when the instance first came into the ring; zero before
	samples   [signalCount]batch
}

func newWatcher(t *Table, c Candidate, config Config, j *judge) *watcher {
	w := &watcher{
		table: t, clock: t.options.Clock,
		log:     t.options.Log.WithValues("worker", c.Pod, "model", c.Model),
		changed: make(chan struct{}, 1),
		address: c.Address, pod: c.Pod, judge: j,
		candidate: c, config: config,
	}
	w.ctx, w.cancel = context.WithCancel(t.ctx)
	w.detector = NewDetector(config, Expect{ModelUID: c.ModelUID, PodUID: c.PodUID}, w.clock.Now())
	if c.Terminating {
		w.detector.Terminate()
	}
	return w
}

// same reports whether c is the candidate that w listens to, and takes the model's name from it, which may change. A pod
// that was once said to terminate does.
func (w *watcher) same(c Candidate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.candidate
	before.Model, c.Terminating = c.Model, before.Terminating
	if c != before {
		return false
	}
	w.candidate = c
	return true
}

// terminate takes the API server's word that the pod goes.
func (w *watcher) terminate() findings {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.candidate.Terminating = true
	w.detector.Terminate()
	return w.settle(w.clock.Now(), nil)
}

// retire ends the watcher; from its return on the watcher changes nothing.
func (w *watcher) retire() findings {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	return w.judge.forget(w.pod)
}

func (w *watcher) configure(c Config) findings {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = c
	w.detector.Configure(c)
	w.poke()
	return w.settle(w.clock.Now(), nil)
}

// poke makes next look at its times anew.
func (w *watcher) poke() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// settle tells the judge what the detector thinks now, and the report that has just come, if one has. The caller holds the
// lock.
func (w *watcher) settle(now time.Time, fresh *workerv1.Report) findings {
	if w.retired {
		return findings{}
	}
	if id := w.detector.Instance(); id != w.instance {
		w.instance, w.since, w.samples = id, time.Time{}, [signalCount]batch{}
	}
	up := w.detector.State() == Up
	if up && w.since.IsZero() {
		w.since = now
	}
	return w.judge.look(now, w.pod, w.instance, up, fresh)
}

// outcome takes how a request to the instance ended.
func (w *watcher) outcome(instance string, o Outcome) {
	share := 1.0
	if o == Good {
		share = 0
	}
	w.mu.Lock()
	if !w.is(instance) {
		w.mu.Unlock()
		return
	}
	now := w.clock.Now()
	found := w.judge.outcome(now, w.pod, instance, o).and(w.sample(now, FailureShare, share))
	model := w.candidate.Model
	w.mu.Unlock()
	if len(found.ejections) > 0 {
		w.poke()
		w.table.publish()
	}
	w.table.tell(model, found)
}

// measured takes a sample of the instance.
func (w *watcher) measured(instance string, s Signal, value float64) {
	if s < 0 || s >= signalCount || !(value >= 0 && value <= maxSample) {
		return
	}
	w.mu.Lock()
	var found findings
	if w.is(instance) {
		found = w.sample(w.clock.Now(), s, value)
	}
	model := w.candidate.Model
	w.mu.Unlock()
	w.table.tell(model, found)
}

// is reports whether the instance is the one that w knows. The caller holds the lock.
func (w *watcher) is(instance string) bool {
	return !w.retired && instance != "" && instance == w.instance
}

// sample adds to a batch, and hands its point on when it is complete. The caller holds the lock.
func (w *watcher) sample(now time.Time, s Signal, value float64) findings {
	point, ok := w.samples[s].add(now, value)
	if !ok {
		return findings{}
	}
	return w.judge.point(now, w.pod, s, point)
}

// suspicion marks the instance as suspect and reports whether that is news.
func (w *watcher) suspicion(instance string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.suspect || w.detector.Instance() != instance {
		return false
	}
	w.suspect = true
	return true
}

// worker is what is known now.
func (w *watcher) worker() Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	ejected, anomaly := w.judge.verdict(w.pod)
	out := Worker{
		Member: Member{
			Candidate: w.candidate, State: w.detector.State(), Instance: w.detector.Instance(),
			Revision: w.report.GetRevision(), Loaded: w.expected && w.report.GetModelLoaded(), Suspect: w.suspect,
			Ejected: !ejected.IsZero(), Since: w.since, Weight: weight(w.report), Resumes: w.report.GetResumes(),
			GeneratesMany: w.report.GetGeneratesMany(), Anomaly: anomaly,
		},
		Report: w.report, LastError: w.detector.Why(),
	}
	if w.report != nil {
		out.ReportedAt = w.detector.heard
	}
	return out
}

// weight is the share of points on the ring that a report asks for, in per cent.
func weight(r *workerv1.Report) int {
	if p := r.GetRingWeightPercent(); p != 0 {
		return int(min(p, maxWeight))
	}
	return 100
}

// run listens until the watcher is cancelled.
func (w *watcher) run() {
	defer w.cancel()
	for wait := time.Duration(0); ; {
		heard, err := w.listen(wait)
		if errors.Is(err, errStopped) {
			return
		}
		wait = w.backoff(wait, heard, err)
	}
}

// backoff is how long to wait before the next stream: nothing after silence or a change of the interval, else a
// sixteenth of an interval, doubled up to a half.
func (w *watcher) backoff(last time.Duration, heard bool, err error) time.Duration {
	if err == nil {
		return 0
	}
	interval := w.settings().Interval
	if heard || last == 0 {
		last = interval / 32
	}
	return min(2*last, interval/2)
}

// listen waits, opens a stream and follows it. It returns whether anything was heard, and why the stream ended: nil
// when the watcher itself gave it up because of silence or a new interval.
func (w *watcher) listen(wait time.Duration) (heard bool, err error) {
	for start := w.clock.Now().Add(wait); w.clock.Now().Before(start); {
		if _, what := w.next(start, nil); what == stopped {
			return false, errStopped
		}
	}
	opened := w.settings()
	events, stop := w.open(opened.Interval)
	defer stop()
	last := w.clock.Now()
	for {
		silent := last.Add(w.settings().silence())
		e, what := w.next(silent, events)
		switch {
		case what == stopped:
			return heard, errStopped
		case what == reconfigured && w.settings().Interval != opened.Interval:
			return heard, nil
		case what == due && !w.clock.Now().Before(silent):
			return heard, nil
		case what == happened && e.err != nil:
			w.update(nil, func(now time.Time) { w.detector.Broken(now, explain(e.err)) })
			return heard, e.err
		case what == happened:
			heard, last = true, w.clock.Now()
			w.hear(e.report)
		}
	}
}

// wake is what next waited for.
type wake int

const (
	stopped wake = iota
	reconfigured
	happened
	due
)

// next waits for an event, a change of the config, or limit; it looks for silence, and for the end of an ejection, whenever
// that is due.
func (w *watcher) next(limit time.Time, events <-chan event) (event, wake) {
	w.mu.Lock()
	until := w.detector.Next()
	end, _ := w.judge.verdict(w.pod)
	w.mu.Unlock()
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	if limit.Before(until) {
		until = limit
	}
	if left := until.Sub(w.clock.Now()); left > 0 {
		timer := w.clock.NewTimer(left)
		defer timer.Stop()
		select {
		case <-w.ctx.Done():
			return event{}, stopped
		case <-w.changed:
			return event{}, reconfigured
		case e := <-events:
			return e, happened
		case <-timer.C():
		}
	}
	w.update(nil, func(now time.Time) { w.detector.Tick(now) })
	return event{}, due
}

func (w *watcher) settings() Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config
}

// hear takes a report.
func (w *watcher) hear(r *workerv1.Report) {
	var at time.Time
	var expected bool
	after := w.update(r, func(now time.Time) {
		before := w.detector.Instance()
		w.detector.Report(now, r)
		expected = stranger(w.detector.expect, r) == ""
		at, w.report, w.expected = now, r, expected
		if w.detector.Why() == "" || w.detector.Instance() != before { // what was said was said of another
			w.suspect = false
		}
	})
	if on := w.table.options.OnReport; on != nil && expected && w.ctx.Err() == nil {
		on(after.Member, r, at)
	}
}

// update runs f under the lock, then logs, publishes and tells what it changed, and returns what is known after it. fresh is
// the report that f takes, if any.
func (w *watcher) update(fresh *workerv1.Report, f func(now time.Time)) Worker {
	before := w.worker()
	w.mu.Lock()
	now := w.clock.Now()
	f(now)
	found := w.settle(now, fresh)
	w.mu.Unlock()
	after := w.worker()
	if w.ctx.Err() == nil && after.State != before.State {
		w.log.Info("the verdict on a worker changes", "from", before.State.String(), "to", after.State.String(),
			"instance", after.Instance, "why", after.LastError)
	}
	if w.ctx.Err() == nil && (len(found.ejections) > 0 || after.placing() != before.placing()) {
		w.table.publish()
	}
	w.table.tell(after.Model, found)
	return after
}
