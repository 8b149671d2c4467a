package scheduler

import (
	"context"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxIDs is the most request ids that Stats names.
const maxIDs = 1024

// Stats says how busy the engine is now. Blocks count as used from the moment that they are booked.
func (s *scheduler) Stats() engine.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := int64(s.limits.blocks)
	used := total - int64(s.state.freeBlocks)
	cached := int64(0)
	st := engine.Stats{
		Running: len(s.state.active), Waiting: len(s.state.queue), MaxSequences: s.limits.sequences,
		KVBlockTokens: blockTokens, KVBlocksTotal: &total, KVBlocksUsed: &used, KVBlocksCached: &cached,
		PrefillPerSecond: s.prefill.perSecond(), DecodePerSecond: s.decode.perSecond(),
	}
	for _, list := range [][]*request{s.state.active, s.state.queue} {
		for _, r := range list {
			if len(st.RequestIDs) < maxIDs {
				st.RequestIDs = append(st.RequestIDs, r.id)
			}
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
		left, ended := s.state.size(), s.ended
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ended:
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
