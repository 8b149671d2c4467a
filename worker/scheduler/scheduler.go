// Package scheduler makes an engine.Engine of an engine.Executor. It decides which tokens run in the next step: requests
// join and leave at every step, running streams come first, and prompts are computed in chunks of what the step's token
// budget leaves. One order rules who starts first, whose prompt is computed first and who gives way last: by priority, and
// first come first served within one, where waiting outweighs priority in the long run. So the first in that order always
// finishes, and by and by everyone does.
//
// Deciding is pure and knows time only as a count of steps: request.go, policy.go, state.go, admit.go, batch.go, apply.go,
// turn.go, and, for what is said of tokens, text.go and voice.go; resume.go begins with what another engine has made.
// loop.go holds the one goroutine that talks to the Executor; between steps it also changes adapters (control.go) and makes
// embeddings (embed.go). progress.go lets others see whether it comes back from there. Which blocks and sequences hold what
// is package kvcache's to decide, which token comes next package sampling's. The package knows no model and no device.
package scheduler

import (
	"context"
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// scheduler is an engine.Engine.
type scheduler struct {
	loaded *engine.Loaded
	caps   engine.Caps // of the executor
	opts   Options
	limits limits
	wake   chan struct{}
	stop   context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	desks  chan struct{} // holds a token for each prompt that is being rendered or tokenised
	err    error         // of closing the executor; read after done

	mu       sync.Mutex // guards the rest; held for microseconds, never during a step
	state    *state
	gather   gather
	coming   int   // Generate calls that are not queued yet
	current  *plan // the step under way, where it can be aborted
	abort    context.CancelFunc
	controls controls
	records  []RequestRecord // of requests that ended, not yet told
	prefill  rate
	decode   rate
	draining bool
	closed   error         // why no request is taken any more
	broken   error         // why the executor can't go on
	changed  chan struct{} // closed and replaced whenever a request or a change of adapters ends
}

// New starts a scheduler for a loaded model. Close it to free the model.
func New(loaded *engine.Loaded, o Options) (engine.Engine, error) {
	caps := loaded.Executor.Caps()
	o = o.withDefaults(caps)
	l, err := newLimits(o, loaded.Info, caps)
	if err != nil {
		return nil, err
	}
	o.Progress.usual = loaded.Warm
	ctx, cancel := context.WithCancel(context.Background())
	s := &scheduler{
		loaded: loaded, caps: caps, opts: o, limits: l,
		wake: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}), desks: make(chan struct{}, desks),
		state: newState(l, loaded.Vocabulary), gather: gather{window: o.Gather}, changed: make(chan struct{}),
	}
	if p, ok := loaded.Executor.(passing); ok {
		p.EachPass(s.begin)
	}
	go s.run(ctx)
	return s, nil
}

// Info describes the loaded model, and what this package adds to what the device can do.
func (s *scheduler) Info() engine.Info {
	info := s.loaded.Info
	info.Caps.Logprobs = true
	info.Caps.JSONObject = s.opts.JSONObject != nil
	info.Caps.Tools = info.Caps.Tools && s.loaded.Splitter != nil
	info.Caps.Resumes = true
	return info
}

// cancel ends r at any stage; a request that has ended stays as it is.
func (s *scheduler) cancel(r *request, why error) {
	s.mu.Lock()
	if !r.done() {
		s.state.end(r)
		s.leave(r, why)
		if s.current != nil && s.current.worthless() {
			s.abort()
		}
	}
	s.mu.Unlock()
	r.out.end(why)
	s.nudge()
}

// leave books that r has ended, the first time that it is told so. s.mu is held.
func (s *scheduler) leave(r *request, why error) {
	if r.left > 0 || r.told {
		return
	}
	r.told = true
	s.announce()
	if s.opts.Observer != nil {
		s.records = append(s.records, r.record(s.opts.Clock.Now(), why))
	}
}

// announce tells those who wait for requests or changes of adapters to end. s.mu is held.
func (s *scheduler) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
