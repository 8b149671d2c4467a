package grpcserver

import (
	"sync/atomic"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// counter numbers the reports of this process.
type counter struct{ n atomic.Uint64 }

func (c *counter) next() uint64 { return c.n.Add(1) }

// maxAdapters is the most adapters that a report names.
const maxAdapters = 256

// report says what there is to know, and from which figures. It has no number yet.
func report(id Identity, now Status) (*workerv1.Report, engine.Stats) {
	var s engine.Stats
	r := &workerv1.Report{
		InstanceId: id.Instance, Model: id.Model, ModelUid: id.ModelUID, Revision: id.Revision,
		PodName: id.PodName, PodUid: id.PodUID,
		ModelLoaded: now.Engine != nil, Draining: now.Draining,
		Stage: now.Stage, ProgressPercent: now.Percent, Reason: now.Reason, Message: now.Message,
		Load: &workerv1.Load{}, Shape: now.Shape, RingWeightPercent: id.RingWeightPercent,
		GeneratesMany: true,
	}
	if now.Draining {
		r.Stage, r.ProgressPercent = workerv1.Stage_STAGE_DRAINING, nil
	}
	if now.Engine != nil {
		s = now.Engine.Stats()
		r.Load, r.Resumes = load(s), now.Engine.Info().Caps.Resumes
		r.Adapters = s.Adapters[:min(len(s.Adapters), maxAdapters)]
	}
	return r, s
}

func load(s engine.Stats) *workerv1.Load {
	return &workerv1.Load{
		Running: uint32(s.Running), Waiting: uint32(s.Waiting), MaxSequences: uint32(s.MaxSequences),
		KvBlocksTotal: count(s.KVBlocksTotal), KvBlocksUsed: count(s.KVBlocksUsed), KvBlocksCached: count(s.KVBlocksCached),
		KvBlockTokens:          uint32(s.KVBlockTokens),
		PrefillTokensPerSecond: s.PrefillPerSecond, DecodeTokensPerSecond: s.DecodePerSecond,
		RequestIds:       s.RequestIDs,
		CacheQueryTokens: count(s.CacheQueries), CacheHitTokens: count(s.CacheHits), Preemptions: count(s.Preemptions),
		BacklogTokens: count(s.Backlog), ProgressTokens: count(s.Progress),
	}
}

func count(n *int64) *uint64 {
	if n == nil {
		return nil
	}
	v := uint64(*n)
	return &v
}
