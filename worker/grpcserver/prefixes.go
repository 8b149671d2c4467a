package grpcserver

import (
	"sync"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// mostPrefixes is the most prompts that a report names, and how many are remembered of an engine that does not follow them
// itself. Each takes 16 bytes.
const mostPrefixes = 1024

// prefixes are the last prompts that an instance has accepted, as their callers name them. Its zero value is ready.
type prefixes struct {
	mu       sync.Mutex // guards what follows
	instance string     // another one has nothing in its cache of what this one had
	ring     [mostPrefixes]prefix
	next     uint64 // the number of the next one; it lies at its number modulo mostPrefixes
	first    uint64 // the number of the instance's first one
}

type prefix struct {
	hash   uint64
	blocks uint32
}

// accept remembers the prompt of a request that an instance has accepted, unless its caller has no name for it.
func (p *prefixes) accept(instance string, q *workerv1.GenerateRequest) {
	if q.GetPrefixBlocks() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(instance)
	p.ring[p.next%mostPrefixes] = prefix{q.GetPrefixHash(), q.GetPrefixBlocks()}
	p.next++
}

// since returns those of the instance that are remembered from number from on, oldest first, and the number from which on
// a stream has not told any.
func (p *prefixes) since(instance string, from uint64) ([]*workerv1.Prefix, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(instance)
	from = max(from, p.first)
	if p.next-from > mostPrefixes {
		from = p.next - mostPrefixes
	}
	out := make([]*workerv1.Prefix, 0, p.next-from)
	for ; from < p.next; from++ {
		x := p.ring[from%mostPrefixes]
		out = append(out, &workerv1.Prefix{Hash: x.hash, Blocks: x.blocks})
	}
	return out, from
}

// telling is how far a stream of reports has told of an instance's prompts, and whether its engine follows them.
type telling struct {
	instance string
	follows  bool
	next     uint64 // the number that comes next
}

// prompts tells a stream what is new of prompts, and reports whether there may be more than a report holds.
func (s *Server) prompts(r *workerv1.Report, e engine.Engine, t *telling) bool {
	follower, ok := e.(engine.Follower)
	if t.instance != r.GetInstanceId() || t.follows != ok {
		*t = telling{instance: r.GetInstanceId(), follows: ok}
	}
	if !ok {
		r.Prefixes, t.next = s.prefixes.since(t.instance, t.next)
		return false
	}
	news, next, missed := follower.Prompts(t.next, mostPrefixes)
	t.next, r.PrefixesExact, r.PrefixesMissed = next, true, missed
	for _, n := range news {
		if n.Inside {
			r.Prefixes = append(r.Prefixes, &workerv1.Prefix{Hash: n.Hash, Blocks: n.Blocks, Number: n.Number})
			continue
		}
		r.PrefixStates = append(r.PrefixStates, &workerv1.PrefixState{
			Hash: n.Hash, Blocks: n.Blocks, HeldBlocks: n.Held, Number: n.Number, Heir: n.Heir,
		})
	}
	return len(news) == mostPrefixes
}

// of forgets what another instance had. The caller holds the lock.
func (p *prefixes) of(instance string) {
	if p.instance != instance {
		p.instance, p.first = instance, p.next
	}
}
