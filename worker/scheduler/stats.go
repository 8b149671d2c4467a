package scheduler

import (
	"context"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// maxIDs is the most request ids that Stats names.
const maxIDs = 1024

// Stats says how busy the engine is now. Each choice of a request counts by itself. Blocks count as used while a running
// sequence holds them, and as cached while they are only there to be hit.
func (s *scheduler) Stats() engine.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	kv, t := s.state.cache.Stats(), s.state.totals
	total, used, cached, evictions := int64(kv.Total), int64(kv.Active), int64(kv.Cached), kv.Evictions
	backlog := s.state.backlog()
	st := engine.Stats{
		Running: len(s.state.active), Waiting: len(s.state.queue) + len(s.controls.embeds), MaxSequences: s.limits.sequences,
		KVBlockTokens: kvcache.BlockTokens, KVBlocksTotal: &total, KVBlocksUsed: &used, KVBlocksCached: &cached,
		PrefillPerSecond: s.prefill.perSecond(), DecodePerSecond: s.decode.perSecond(),
		CacheQueries: &t.queries, CacheHits: &t.hits, Preemptions: &t.preemptions, Evictions: &evictions,
		Backlog: &backlog, Progress: &t.computed, Adapters: s.state.loaded(),
	}
	seen := map[*request]bool{}
	for _, list := range [][]*run{s.state.active, s.state.queue} {
		for _, r := range list {
			if len(st.RequestIDs) < maxIDs && !seen[r.request] {
				seen[r.request] = true
				st.RequestIDs = append(st.RequestIDs, r.request.id)
			}
		}
	}
	for _, e := range s.controls.embeds {
		backlog += int64(e.left())
		if len(st.RequestIDs) < maxIDs {
			st.RequestIDs = append(st.RequestIDs, e.id)
		}
	}
	return st
}

// Health returns why the engine can't serve, or nil.
func (s *scheduler) Health(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.closed
}

// Drain refuses new requests and returns when none is inside or ctx ends.
func (s *scheduler) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		s.draining = true
		left, changed := s.state.size()+len(s.controls.embeds), s.changed
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends what still runs with engine.ErrClosed and frees the model.
func (s *scheduler) Close() error {
	s.stop()
	<-s.done
	return s.err
}
