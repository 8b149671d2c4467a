package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

// Options are what a Gate needs. All fields but Limits and Woken are required.
type Options struct {
	// Levels says how full a model is; its Queued is the gate's to fill. Bands are the present ones. Both are called often.
	Levels func(model string) admission.Levels
	Bands  func() admission.Bands
	// Waits says which errors of an item's Try mean that there is no room for it yet.
	Waits func(error) bool
	// Limits may be changed by Configure.
	Limits Limits
	Clock  clock.WithDelayedExecution
	// Rand draws from [0, 1). It spreads those who are told to come back. It must not call the gate.
	Rand func() float64
	// Woken is called once each time that requests begin to wait for a model without workers. It must not block.
	Woken func(model string)
}

// Gate is where requests enter. It is safe for concurrent use, and none of its locks is held while a function of an item
// or of its options runs, but Rand.
type Gate struct {
	options Options
	limits  atomic.Pointer[Limits]
	total   Total

	models  atomic.Pointer[map[string]*model] // the map never changes
	writing sync.Mutex                        // guards changes of models, and the rest
	named   map[string]bool                   // by the last Keep; nil before the first
	leaving []*model                          // that are forgotten while one of their requests may still be tried
	closed  bool
}

// New returns a gate without models; they come with their requests, until Keep says which there are.
func New(o Options) *Gate {
	g := &Gate{options: o}
	g.limits.Store(o.Limits.orDefaults())
	g.models.Store(&map[string]*model{})
	return g
}

// Configure makes l the limits of requests that come from now on. Those that wait stay.
func (g *Gate) Configure(l Limits) { g.limits.Store(l.orDefaults()) }

// Enter lets a request in: at once, or when it is its turn. It returns when the item has been placed, which is when the
// caller must call Done of the Pass at its end; or with ctx's error, ErrClosed, ErrGone, *FullError, *RefusedError,
// *TimeoutError, *HoldFullError, or the error of its Try. After it has returned, Try isn't called. A panic of Try or of a
// function of the options is its caller's; it ends that request only.
func (g *Gate) Enter(ctx context.Context, it *Item) (*Pass, error) {
	m, err := g.model(it.Model)
	if err != nil {
		return nil, err
	}
	return m.enter(ctx, it)
}

// Wake says that there may be more room on a model's workers, or that its workers have changed: a report, the end of a
// request that had no Pass, a worker that comes or goes.
func (g *Gate) Wake(model string) {
	if m := (*g.models.Load())[model]; m != nil {
		m.wake()
	}
}

// WakeAll does so for every model: when bands have changed.
func (g *Gate) WakeAll() {
	for _, m := range *g.models.Load() {
		m.wake()
	}
}

// Stats are a model's figures.
func (g *Gate) Stats(model string) Stats {
	if m := (*g.models.Load())[model]; m != nil {
		return m.stats()
	}
	return Stats{}
}

// Keep says which models there are, before any request for a further one comes. It forgets all others with their
// figures: who waits for them, and who comes until another Keep names them, gets ErrGone. Passes stay good.
func (g *Gate) Keep(uids map[string]bool) {
	g.writing.Lock()
	defer g.writing.Unlock()
	g.named = map[string]bool{}
	maps.Copy(g.named, uids)
	kept := maps.Clone(*g.models.Load())
	maps.DeleteFunc(kept, func(uid string, m *model) bool {
		if uids[uid] {
			return false
		}
		m.forget()
		g.leaving = append(g.leaving, m)
		return true
	})
	g.leaving = slices.DeleteFunc(g.leaving, (*model).rests)
	g.models.Store(&kept)
}

// Close ends the wait of all with ErrClosed, and lets nobody in any more. Passes stay good. It waits for a Try that runs.
func (g *Gate) Close() {
	g.writing.Lock()
	g.closed = true
	all := slices.AppendSeq(slices.Clone(g.leaving), maps.Values(*g.models.Load()))
	g.writing.Unlock()
	for _, m := range all {
		m.close()
	}
}

// model is the model of that UID.
func (g *Gate) model(uid string) (*model, error) {
	if m := (*g.models.Load())[uid]; m != nil {
		return m, nil
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	models := *g.models.Load()
	if m := models[uid]; m != nil {
		return m, nil
	}
	switch {
	case g.closed:
		return nil, ErrClosed
	case g.named != nil && !g.named[uid]:
		return nil, ErrGone
	}
	m := &model{gate: g, uid: uid, turn: make(chan struct{}, 1), q: NewQueue(&g.total, g.options.Rand)}
	models = maps.Clone(models)
	models[uid] = m
	g.models.Store(&models)
	return m, nil
}

func (g *Gate) now() time.Time { return g.options.Clock.Now() }

// Pass is a request that has been placed.
type Pass struct {
	// Waited is how long it waited, Held whether it came when there was no worker; both with what its Item says of before.
	Waited time.Duration
	Held   bool

	model    *model
	entry    *Entry // nil where it did not wait
	estimate int64
	since    time.Time
	done     atomic.Bool
}

// Done says that the request has ended and what tokens it really took, of prompt and answer; below 0: unknown. It must
// come after the placement knows of the end, as it lets the next one try. Later calls change nothing.
func (p *Pass) Done(tokens int64) {
	if !p.done.Swap(true) {
		p.model.ended(p, tokens)
	}
}

// Stats are figures of what waits for one model. All counts but Queued, Held, Tokens and Bytes only grow.
type Stats struct {
	// Queued requests wait for room on the workers, Held ones for any worker. Tokens and Bytes are of both.
	Queued, Held  int
	Tokens, Bytes int64
	// Oldest is for how long the one that has waited longest has.
	Oldest time.Duration
	// Wakes counts how often requests began to wait for a model without workers.
	Wakes uint64
	// TokensPerSecond and RequestsPerSecond are how fast the queue has drained while something waited.
	TokensPerSecond, RequestsPerSecond float64
	// Entered requests have been dispatched, cancelled by their clients, expired, refused, or failed by their own error;
	// or they wait.
	Entered, Dispatched, Cancelled, Expired, Refused, Failed uint64
}
