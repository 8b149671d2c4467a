package scheduler

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// TestWhateverHappensTheBooksAreRight drives the pure step with random arrivals, cancels, refusals and tokens, and holds
// it to: every request ends exactly once; no sequence or block is lost or owned twice; a batch stays within its budgets,
// continues each sequence where it stood, and never needs more cells than there are.
func TestWhateverHappensTheBooksAreRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits{
			sequences: rapid.IntRange(1, 5).Draw(t, "sequences"),
			waiting:   rapid.IntRange(1, 6).Draw(t, "waiting"),
			blocks:    rapid.IntRange(1, 24).Draw(t, "blocks"),
			context:   rapid.IntRange(2, 300).Draw(t, "context"),
		}
		l.stepTokens = l.sequences + rapid.IntRange(1, 40).Draw(t, "budget")
		m := &model{l: l, s: newState(l, sim.Vocabulary{}), ends: map[*request]int{}, cells: map[engine.Seq]int{}}
		for range rapid.IntRange(1, 120).Draw(t, "events") {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2:
				m.arrive(t)
			case 3:
				m.cancel(t)
			default:
				m.step(t)
			}
			m.check(t)
		}
		for i := 0; m.s.size() > 0 || len(m.s.drops) > 0; i++ {
			if i > 10000 {
				t.Fatalf("%d requests never end", m.s.size())
			}
			m.step(t)
			m.check(t)
		}
		for r, n := range m.ends {
			if n != 1 {
				t.Fatalf("request %s ended %d times", r.id, n)
			}
		}
		if m.s.freeBlocks != l.blocks || len(m.s.freeSeqs) != l.sequences || len(m.cells) != 0 {
			t.Fatalf("left over: %d of %d blocks free, %d of %d sequences, cells %v", m.s.freeBlocks, l.blocks, len(m.s.freeSeqs), l.sequences, m.cells)
		}
	})
}

// model is the device as the batches describe it, and the requests that were ever accepted.
type model struct {
	l     limits
	s     *state
	all   []*request
	ends  map[*request]int
	cells map[engine.Seq]int
}

func (m *model) arrive(t *rapid.T) {
	prompt := rapid.IntRange(0, 60).Draw(t, "prompt")
	g, err := m.l.judge(prompt, rapid.IntRange(0, 80).Draw(t, "max"))
	if err != nil {
		return
	}
	r := &request{id: string(rune('a' + len(m.all)%26)), prompt: make([]engine.Token, prompt), grant: g, text: text{stops: []string{"ab"}}}
	if m.s.arrive(r) == nil {
		m.all = append(m.all, r)
		m.ends[r] = 0
	}
}

func (m *model) cancel(t *rapid.T) {
	if len(m.all) == 0 {
		return
	}
	r := m.all[rapid.IntRange(0, len(m.all)-1).Draw(t, "which")]
	if r.phase != ended {
		m.s.end(r)
		m.ends[r]++
	}
}

func (m *model) step(t *rapid.T) {
	p := m.s.next()
	if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
		m.s.undo(p)
		return
	}
	for _, op := range p.batch.KV {
		if op.Kind != engine.KVDrop {
			t.Fatalf("unexpected change %v", op)
		}
		delete(m.cells, op.Dst)
	}
	tokens, n := make([]engine.Token, len(p.requests)), 0
	for i, item := range p.batch.Items {
		if m.cells[item.Seq] != item.Pos {
			t.Fatalf("item at %d of sequence %d, which holds %d", item.Pos, item.Seq, m.cells[item.Seq])
		}
		m.cells[item.Seq] += len(item.Tokens)
		n += len(item.Tokens)
		tokens[i] = rapid.SampledFrom([]engine.Token{'a', 'b', 'x', 0xe4, sim.End}).Draw(t, "token")
	}
	if n > m.l.stepTokens || p.decode > m.l.sequences {
		t.Fatalf("a step of %d tokens, %d streams", n, p.decode)
	}
	sum := 0
	for _, c := range m.cells {
		sum += c
	}
	if sum > m.l.blocks*blockTokens {
		t.Fatalf("%d cells are needed, there are %d", sum, m.l.blocks*blockTokens)
	}
	if rapid.IntRange(0, 4).Draw(t, "cancel while it runs") == 0 {
		m.cancel(t)
	}
	for _, e := range m.s.apply(p, tokens) {
		if m.ends[e.request] != 0 {
			t.Fatalf("request %s has output after its end", e.request.id)
		}
		if e.chunk.Finish != "" {
			m.ends[e.request]++
			if u := e.chunk.Usage; u.Completion > e.request.grant.limit {
				t.Fatalf("%d tokens were made, %d allowed", u.Completion, e.request.grant.limit)
			}
		}
	}
}

func (m *model) check(t *rapid.T) {
	booked, owner := 0, map[engine.Seq]bool{}
	for _, r := range m.s.active {
		booked += r.blocks
		if owner[r.seq] || r.computed > r.blocks*blockTokens {
			t.Fatalf("request %s: sequence %d owned twice, or %d cells in %d blocks", r.id, r.seq, r.computed, r.blocks)
		}
		owner[r.seq] = true
	}
	for _, seq := range m.s.freeSeqs {
		if owner[seq] {
			t.Fatalf("sequence %d is free and owned", seq)
		}
		owner[seq] = true
	}
	if booked+m.s.freeBlocks != m.l.blocks || len(owner) != m.l.sequences {
		t.Fatalf("%d booked and %d free of %d blocks; %d of %d sequences", booked, m.s.freeBlocks, m.l.blocks, len(owner), m.l.sequences)
	}
}
