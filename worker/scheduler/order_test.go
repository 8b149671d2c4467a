package scheduler

import (
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// stepOnce runs a step whose tokens are all the same letter.
func (s *state) stepOnce() {
	p := s.next()
	for i := range p.draws {
		p.draws[i].choice = sampling.Choice{Token: 'x'}
	}
	s.apply(p, time.Time{}, &StepRecord{})
}

// put queues a request that is like no other.
func (s *state) put(number, prompt, most, priority int) *request {
	r := &request{priority: priority, adapter: s.adapters[""], grant: grant{most: most}}
	tokens := make([]engine.Token, prompt)
	tokens[0] = engine.Token(number)
	r.runs = []*run{{request: r, tokens: tokens}}
	if s.arrive(r) != nil {
		return nil
	}
	return r
}

func TestTheLowestPriorityEndsWithinItsBoundHoweverManyGreaterOnesCome(t *testing.T) {
	const age, priority, each = 10, 3, 2
	s := newState(limits{sequences: 1, waiting: 1000, stepTokens: 20, age: age, context: 64,
		cache: kvcache.Options{Blocks: 8, Sequences: 1}}, sim.Vocabulary{})
	s.put(1000, 2, each, priority)
	low := s.put(1001, 2, each, 0)
	// What comes in the first priority·age steps goes before it, and takes so many steps each.
	bound := (priority*age + 2) * each
	for i := range bound {
		s.put(i, 2, each, priority)
		if s.stepOnce(); low.done() {
			if i < priority*age {
				t.Fatalf("it ended in step %d, before those of greater priority", i)
			}
			return
		}
	}
	t.Fatalf("it has not ended in %d steps", bound)
}

func TestAVictimComesBackBeforeThoseThatCameAfterIt(t *testing.T) {
	s := newState(limits{sequences: 4, waiting: 8, stepTokens: 100, age: DefaultAgeSteps, context: 128,
		cache: kvcache.Options{Blocks: 12, Sequences: 8, MaxIdle: 2}}, sim.Vocabulary{})
	var all []*request
	ends := map[*request]int{}
	for i := range 3000 {
		if r := s.put(i, 1, 70, 0); r != nil { // one block each at first, and five in the end
			all = append(all, r)
		}
		s.stepOnce()
		for _, r := range all {
			if r.done() && ends[r] == 0 {
				ends[r] = i
			}
		}
	}
	most := 0
	for i := 1; i < len(all) && ends[all[i]] > 0; i++ {
		if ends[all[i]] < ends[all[i-1]] {
			t.Fatalf("request %d ended at step %d, the one before it at step %d", i, ends[all[i]], ends[all[i-1]])
		}
		most = max(most, all[i].preemptions)
	}
	t.Logf("%d preemptions, at most %d of one request, among %d that ended", s.totals.preemptions, most, len(ends))
	if s.totals.preemptions < 50 || most > 3 {
		t.Fatalf("%d preemptions, %d of one request", s.totals.preemptions, most)
	}
}
