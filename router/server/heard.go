package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/admission"
	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// report takes what a worker says of its load, or of its way to serve.
func (f *fleet) report(m heartbeat.Member, r *workerv1.Report, at time.Time) {
	if !r.GetModelLoaded() {
		f.mu.Lock()
		p := f.progress[m.Pod]
		if p == nil {
			p = &progress{}
			f.progress[m.Pod] = p
		}
		p.hear(r, at)
		f.mu.Unlock()
		return
	}
	f.board.Observe(m.ModelUID, m.Pod, m.Instance, loadOf(r), at)
	f.gate.Wake(m.ModelUID)
}

// loadOf is a report's load in the words of placement, in tokens instead of blocks.
func loadOf(r *workerv1.Report) placement.Load {
	l := r.GetLoad()
	out := placement.Load{
		Running: int(l.GetRunning()), Waiting: int(l.GetWaiting()), Seats: int(l.GetMaxSequences()),
		RequestIDs: l.GetRequestIds(), Adapters: r.GetAdapters(), Prompts: prompts(r),
		Exact: r.GetPrefixesExact(), Missed: r.GetPrefixesMissed(),
	}
	if l != nil && out.Adapters == nil {
		out.Adapters = []string{} // it says that it has none
	}
	if l != nil {
		out.Backlog, out.Prefill, out.Decode = l.BacklogTokens, l.PrefillTokensPerSecond, l.DecodeTokensPerSecond
		out.KVTotal, out.KVUsed = blocks(l.KvBlocksTotal, l), blocks(l.KvBlocksUsed, l)
	}
	return out
}

// mostPrompts is how many prompts of a report count. A worker names no more.
const mostPrompts = 1024

// prompts are those that a report names, in the words of placement and in the order of their numbers; of too many the last ones.
func prompts(r *workerv1.Report) []placement.Prompt {
	list, states := r.GetPrefixes(), r.GetPrefixStates()
	list = list[max(0, len(list)-mostPrompts):]
	states = states[max(0, len(states)-mostPrompts):]
	if len(list)+len(states) == 0 {
		return nil
	}
	out := make([]placement.Prompt, 0, len(list)+len(states))
	for _, p := range list {
		if n := min(p.GetBlocks(), prefix.MaxBlocks); n > 0 {
			out = append(out, placement.Prompt{Hash: p.GetHash(), Blocks: int(n), Number: p.GetNumber()})
		}
	}
	for _, p := range states {
		if n := min(p.GetBlocks(), prefix.MaxBlocks); n > 0 && p.GetNumber() > 0 {
			out = append(out, placement.Prompt{
				Hash: p.GetHash(), Blocks: int(n), Lost: int(n - min(n, p.GetHeldBlocks())), Number: p.GetNumber(), Left: true, Heir: p.GetHeir(),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b placement.Prompt) int { return cmp.Compare(a.Number, b.Number) })
	return out[max(0, len(out)-mostPrompts):]
}

// blocks are a number of blocks in tokens; nil where it is unknown.
func blocks(n *uint64, l *workerv1.Load) *uint64 {
	if n == nil || l.GetKvBlockTokens() == 0 {
		return nil
	}
	return new(*n * uint64(l.GetKvBlockTokens()))
}

// levels say how full a model is. Where every worker of the ring has just refused a request, or its connection broke, there
// is none until one is heard again: what comes waits, as it would a moment later when they are found to be lost.
func (f *fleet) levels(modelUID string) admission.Levels {
	l := f.board.Levels(modelUID, f.clock.Now())
	out := admission.Levels{KVPercent: l.KVPercent, InRing: l.InRing, Running: l.Running, Waiting: l.Waiting, Seats: l.Seats}
	if v := f.board.View(modelUID); v != nil {
		out.Candidates = v.Candidates()
		if v.Sound() == 0 {
			out.InRing = 0
		}
	}
	return out
}

// outcome tells the heartbeats how a call ended.
func (f *fleet) outcome(pod, instance string, o upstream.Outcome) {
	switch o {
	case upstream.Good:
		f.table.Outcome(pod, instance, heartbeat.Good)
	case upstream.Failed:
		f.table.Outcome(pod, instance, heartbeat.Failed)
	case upstream.NoFirstByte:
		f.table.Outcome(pod, instance, heartbeat.NoFirstByte)
	}
}

// measured tells the heartbeats how fast a call was.
func (f *fleet) measured(pod, instance string, m upstream.Measure) {
	for _, s := range samples(m) {
		f.table.Measured(pod, instance, s.signal, s.value)
	}
}

// sample is what a worker is compared by.
type sample struct {
	signal heartbeat.Signal
	value  float64
}

// samples are those of a call.
func samples(m upstream.Measure) []sample {
	out := append(make([]sample, 0, 2), sample{heartbeat.FirstToken, slowness(m)}) // on the stack
	if m.BetweenTokens > 0 {
		out = append(out, sample{heartbeat.BetweenTokens, m.BetweenTokens.Seconds()})
	}
	return out
}

// besides is what a call takes besides waiting and computing its prompt, roughly. It is added to what was measured and to what
// was expected, so that their ratio says something of short prompts, too.
const besides = 100 * time.Millisecond

// slowness is how many times as long as expected a call took to its first token. Long prompts and queues do not make it more.
func slowness(m upstream.Measure) float64 {
	return (m.FirstToken + besides).Seconds() / (m.Usual + besides).Seconds()
}

// ejected counts a change of who is passed over. The table logs it.
func (f *fleet) ejected(e heartbeat.Ejection) {
	if e.Change == heartbeat.Ejected {
		f.count(e.ModelUID, func(name string) { f.set.Ejections.WithLabelValues(name).Inc() })
	}
}

// anomaly counts a worker that begins to differ. The table logs it.
func (f *fleet) anomaly(a heartbeat.Anomaly) {
	if a.On {
		f.count(a.ModelUID, func(name string) { f.set.Anomalies.WithLabelValues(name, a.Signal.String()).Inc() })
	}
}

// count calls counts with a model's name in figures, which it returns; of a model that has none it is empty. The figures of
// models that go are dropped under the same lock, so that none comes back.
func (f *fleet) count(modelUID string, counts func(name string)) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, known := f.labels[modelUID]
	if known {
		counts(name)
	}
	return name
}

// retried counts and logs one more worker asked.
func (f *fleet) retried(r upstream.Retry) {
	name := f.count(r.ModelUID, func(name string) { f.set.Retries.WithLabelValues(name).Inc() })
	f.log.Info("a request is tried on another worker", "request_id", r.RequestID, "model", name, "worker", r.From, "why", r.Why, "next", r.To)
}

// resumed counts and logs an answer that goes on at another worker.
func (f *fleet) resumed(r upstream.Retry) {
	name := f.count(r.ModelUID, func(name string) { f.set.Resumes.WithLabelValues(name).Inc() })
	f.log.Info("an answer goes on at another worker", "request_id", r.RequestID, "model", name, "worker", r.From, "why", r.Why,
		"next", r.To, "tokens", r.Tokens)
}

// forgot counts an answer that is no longer kept.
func (f *fleet) forgot(modelUID string) {
	f.count(modelUID, func(name string) { f.set.Forgotten.WithLabelValues(name).Inc() })
}

// quarantined logs a request that is not run.
func (f *fleet) quarantined(q upstream.Quarantine) {
	name := f.count(q.ModelUID, func(string) {})
	f.log.Info("a request is not run, as workers died at work on it", "request_id", q.RequestID, "model", name, "workers", q.Pods, "until", q.Until)
}

// stateAge is how old what is told of a model's workers may be. Many may ask at once: all whose requests are held.
const stateAge = 250 * time.Millisecond

// state is what a model's workers do.
func (f *fleet) state(modelUID string) workersState {
	now := f.clock.Now()
	f.mu.Lock()
	kept, ok := f.states[modelUID]
	f.mu.Unlock()
	if ok && now.Sub(kept.at) < stateAge {
		return kept.workersState
	}
	kept = keptState{f.look(modelUID, now), now}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[modelUID] = kept
	return kept.workersState
}

// keptState is what was seen at a time.
type keptState struct {
	workersState
	at time.Time
}

// look is state without memory.
func (f *fleet) look(modelUID string, now time.Time) (s workersState) {
	s.sound = f.board.View(modelUID).Sound()
	var furthest string
	for _, w := range f.table.Workers() {
		if w.ModelUID != modelUID {
			continue
		}
		s.candidates++
		stage := w.Report.GetStage()
		if stage == workerv1.Stage_STAGE_FAILED {
			s.failed++
			continue
		}
		if s.stage == workerv1.Stage_STAGE_DRAINING || stage > s.stage && stage != workerv1.Stage_STAGE_DRAINING || s.stage == 0 {
			s.stage, s.percent, furthest = stage, nil, w.Pod
			if w.Report != nil {
				s.percent = w.Report.ProgressPercent
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.progress[furthest]; p != nil && p.stage == s.stage {
		s.left = p.left(now)
	}
	return s
}

// waits is what requests of a model wait for; empty when a worker takes them.
func (f *fleet) waits(modelUID string) string {
	if f.board.View(modelUID).Sound() > 0 {
		return ""
	}
	return f.state(modelUID).waits()
}

// bell wakes everybody who listens. Its zero value is ready.
type bell struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// listen returns a channel that is closed when the bell rings next.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// figures brings those up to date that are looked at only when somebody asks.
func (f *fleet) figures() {
	f.set.Kept.Set(float64(f.calls.Kept()))
	f.set.Resting.Set(float64(f.calls.Resting()))
	bands := *f.bands.Load()
	odd := map[string]int{}
	for _, w := range f.table.Workers() {
		if w.Anomaly != "" {
			odd[w.ModelUID]++
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, name := range f.labels {
		s := f.gate.Stats(uid)
		f.set.Queued.WithLabelValues(name).Set(float64(s.Queued))
		f.set.Held.WithLabelValues(name).Set(float64(s.Held))
		f.set.Band.WithLabelValues(name).Set(float64(bands.Band(f.levels(uid).Percent(bands))))
		f.set.Anomalous.WithLabelValues(name).Set(float64(odd[uid]))
	}
}
