package openai

import (
	"math"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxIDs is the most request ids that Stats names, maxRequests more requests than any server has.
const maxIDs, maxRequests = 1024, 1 << 20

// Stats says how busy the server is. Inside is what the worker, its only client, has there at this moment, each choice of a
// request by itself. How many of these run, and all else, is the server's word, which is as old as the last look: it may
// count requests that have ended since. What it does not export is unknown.
func (d *Driver) Stats() engine.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.seen
	s := engine.Stats{
		MaxSequences: d.about.sequences(&d.o), KVBlockTokens: int(number(f.kvBlockTokens)),
		PrefillPerSecond: d.rates.prefill.perSecond(), DecodePerSecond: d.rates.decode.perSecond(),
		CacheQueries: whole(f.queries), CacheHits: whole(f.hits), Preemptions: whole(f.preempt),
		Progress: whole(f.work()), Adapters: d.loaded(),
	}
	s.KVBlocksTotal, s.KVBlocksUsed = f.blocks()
	for c := range d.running {
		if n := max(c.open, 1); c.answering {
			s.Running += n
		} else {
			s.Waiting += n
		}
		if len(s.RequestIDs) < maxIDs {
			s.RequestIDs = append(s.RequestIDs, c.id)
		}
	}
	for q := range d.questions {
		if q.id == "" {
			continue
		}
		s.Waiting++
		if len(s.RequestIDs) < maxIDs {
			s.RequestIDs = append(s.RequestIDs, q.id)
		}
	}
	if number(f.running) > maxRequests || number(f.waiting) > maxRequests {
		return s // it can't mean them
	}
	if f.running != nil && f.waiting != nil {
		all := s.Running + s.Waiting
		s.Running = min(int(*f.running), all)
		s.Waiting = all - s.Running
	}
	return s
}

// blocks returns how many KV blocks there are and how many are in use.
func (f *figures) blocks() (total, used *int64) {
	blocks := f.kvBlocks
	if blocks == nil && f.kvTokensTotal != nil && f.kvBlockTokens != nil {
		n := math.Floor(*f.kvTokensTotal / *f.kvBlockTokens)
		blocks = &n
	}
	if blocks == nil {
		return nil, nil
	}
	total = whole(blocks)
	switch {
	case f.kvUsage != nil:
		n := math.Round(*f.kvUsage * *blocks)
		used = whole(&n)
	case f.kvTokensUsed != nil && f.kvBlockTokens != nil:
		n := min(math.Ceil(*f.kvTokensUsed / *f.kvBlockTokens), *blocks)
		used = whole(&n)
	}
	return total, used
}

func number(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func whole(v *float64) *int64 {
	if v == nil {
		return nil
	}
	n := int64(*v)
	return &n
}

// rates are how fast a server works, by the differences of its counters.
type rates struct {
	last            time.Time
	before          figures
	prefill, decode rate
}

// add books what has been done since the last look.
func (r *rates) add(now time.Time, f figures) {
	took := now.Sub(r.last).Seconds()
	if !r.last.IsZero() && took > 0 {
		if tokens, ok := grown(r.before.generated, f.generated); ok && (tokens > 0 || number(r.before.running) > 0) {
			r.decode.add(took, tokens)
		}
		tokens, ok := grown(r.before.prefilled, f.prefilled)
		if seconds, known := grown(r.before.prefillSeconds, f.prefillSeconds); ok && known && seconds > 0 && tokens > 0 {
			r.prefill.add(seconds, tokens)
		}
	}
	r.last, r.before = now, f
}

// grown is how much a counter has grown.
func grown(before, after *float64) (float64, bool) {
	if before == nil || after == nil || *after < *before {
		return 0, false
	}
	return *after - *before, true
}

// window is how many seconds of work a rate looks back on.
const window = 10

// rate is tokens per second over the last seconds in which there was work.
type rate struct{ seconds, tokens float64 }

// add lets older work fade, so that the sums stay those of one window.
func (r *rate) add(seconds, tokens float64) {
	r.seconds += seconds
	r.tokens += tokens
	if r.seconds > window {
		keep := window / r.seconds
		r.seconds, r.tokens = r.seconds*keep, r.tokens*keep
	}
}

func (r *rate) perSecond() *float64 {
	if r.seconds <= 0 {
		return nil
	}
	v := r.tokens / r.seconds
	return &v
}
