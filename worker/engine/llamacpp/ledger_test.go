package llamacpp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// rules is the ledger's rules, told in the plainest way: every position is an identity, and cells are what differs.
type rules map[engine.Seq][]int

func (m rules) used() int {
	seen := map[int]bool{}
	for _, s := range m {
		for _, id := range s {
			seen[id] = true
		}
	}
	return len(seen)
}

func TestTheLedgerCountsAsItsRulesSay(t *testing.T) {
	const cells, sequences, steps = 40, 6, 20000
	r := rand.New(rand.NewPCG(5, 6))
	l, m, next, refused := newLedger(cells, sequences), rules{}, 0, 0
	for range steps {
		b := &engine.Batch{}
		after := rules{}
		for s, ids := range m {
			after[s] = slices.Clone(ids)
		}
		for range r.IntN(4) {
			op := engine.KVOp{Kind: engine.KVKind(r.IntN(3)), Src: engine.Seq(r.IntN(sequences)), Dst: engine.Seq(r.IntN(sequences))}
			switch op.Kind {
			case engine.KVDrop:
				after[op.Dst] = nil
			case engine.KVTruncate:
				op.N = r.IntN(12)
				after[op.Dst] = after[op.Dst][:min(op.N, len(after[op.Dst]))]
			case engine.KVFork:
				if op.Src == op.Dst {
					continue
				}
				op.N = r.IntN(len(after[op.Src]) + 1)
				after[op.Dst] = slices.Clone(after[op.Src][:op.N])
			}
			b.KV = append(b.KV, op)
		}
		for s := range engine.Seq(sequences) {
			if r.IntN(3) == 0 {
				it := engine.Item{Seq: s, Pos: len(after[s]), Tokens: make([]engine.Token, 1+r.IntN(9))}
				for range it.Tokens {
					after[s] = append(slices.Clip(after[s]), next)
					next++
				}
				b.Items = append(b.Items, it)
			}
		}
		err := l.begin(b, 1, 1000, 1000)
		fits := after.used() <= cells
		if fits != (err == nil) || err != nil && !errors.Is(err, engine.ErrNoKV) {
			t.Fatalf("begin: %v with %d cells of %d", err, after.used(), cells)
		}
		switch {
		case !fits:
			refused++
		case r.IntN(5) == 0:
			l.abandon()
		default:
			l.commit(b.Items)
			m = after
		}
		check(t, l, m)
	}
	if refused < steps/100 || refused > steps*99/100 {
		t.Errorf("%d of %d steps were refused, so one side was hardly tried", refused, steps)
	}
}

func check(t *testing.T, l *ledger, m rules) {
	t.Helper()
	if l.used != m.used() || len(l.free) > 4*len(l.refs) {
		t.Fatalf("%d cells are used and %d listed as free, want %d used", l.used, len(l.free), m.used())
	}
	owner := map[int32]int{} // a cell has one identity
	for s, ids := range m {
		if len(l.seqs[s]) != len(ids) {
			t.Fatalf("sequence %d has %d cells, want %d", s, len(l.seqs[s]), len(ids))
		}
		for i, c := range l.seqs[s] {
			if id, ok := owner[c]; ok && id != ids[i] {
				t.Fatalf("cell %d holds two positions", c)
			}
			owner[c] = ids[i]
		}
	}
}
