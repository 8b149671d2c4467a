package llamacpp

import (
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// ledger knows which KV cells each sequence holds and how many are free, as the library's unified cache does: a cell belongs
// to one position and to any number of sequences. It lets a step be refused before anything has changed, and positions be
// checked before the library sees them.
type ledger struct {
	seqs [][]int32 // cells by position
	refs []uint16  // sequences that hold a cell
	free []int32   // cells with refs 0; one that a fork of the same step took again is here too
	used int
	undo []change
	mark int    // length of free when the last begin began
	seen []bool // sequences with an item in the batch being checked
}

// change is what a sequence was before an operation.
type change struct {
	seq   engine.Seq
	cells []int32
}

func newLedger(cells, sequences int) *ledger {
	l := &ledger{seqs: make([][]int32, sequences), refs: make([]uint16, cells), free: make([]int32, cells),
		seen: make([]bool, sequences)}
	for i := range l.free {
		l.free[i] = int32(cells - 1 - i)
	}
	return l
}

// begin runs the operations of b and checks its items against what they leave. On an error nothing has changed; otherwise
// commit or abandon must follow.
func (l *ledger) begin(b *engine.Batch, vocab, mostTokens, mostLogits int) error {
	l.undo, l.mark = l.undo[:0], len(l.free)
	for i, op := range b.KV {
		if err := l.apply(op); err != nil {
			l.abandon()
			return fmt.Errorf("KV operation %d: %w", i, err)
		}
	}
	tokens, err := l.checkItems(b.Items, vocab, mostTokens, mostLogits)
	if err == nil && l.used+tokens > len(l.refs) {
		err = fmt.Errorf("%w: %d are free of %d, the step needs %d", engine.ErrNoKV, len(l.refs)-l.used, len(l.refs), tokens)
	}
	if err != nil {
		l.abandon()
	}
	return err
}

// abandon takes back the operations of begin.
func (l *ledger) abandon() {
	for i := len(l.undo) - 1; i >= 0; i-- {
		l.set(l.undo[i].seq, l.undo[i].cells)
	}
	l.undo, l.free = l.undo[:0], l.free[:l.mark] // what was freed is held again
}

// commit adds the cells of the items, which begin has found to be there.
func (l *ledger) commit(items []engine.Item) {
	l.undo = l.undo[:0]
	for _, it := range items {
		for range it.Tokens {
			l.seqs[it.Seq] = append(l.seqs[it.Seq], l.take())
		}
	}
}

// take returns a free cell, now held once.
func (l *ledger) take() int32 {
	for {
		cell := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		if l.refs[cell] == 0 {
			l.refs[cell] = 1
			l.used++
			return cell
		}
	}
}

// apply changes one sequence and remembers what it was.
func (l *ledger) apply(op engine.KVOp) error {
	if !l.has(op.Dst) {
		return fmt.Errorf("there is no sequence %d of %d", op.Dst, len(l.seqs))
	}
	old := l.seqs[op.Dst]
	var cells []int32
	switch op.Kind {
	case engine.KVDrop:
	case engine.KVTruncate:
		if op.N < 0 {
			return fmt.Errorf("sequence %d can't be cut to %d cells", op.Dst, op.N)
		}
		cells = old[:min(op.N, len(old)):len(old)]
	case engine.KVFork:
		if !l.has(op.Src) || op.Src == op.Dst {
			return fmt.Errorf("sequence %d can't be forked to %d: there are %d sequences", op.Src, op.Dst, len(l.seqs))
		}
		if op.N < 0 || op.N > len(l.seqs[op.Src]) {
			return fmt.Errorf("sequence %d has %d cells, %d can't be forked", op.Src, len(l.seqs[op.Src]), op.N)
		}
		cells = append(make([]int32, 0, op.N+16), l.seqs[op.Src][:op.N]...)
	default:
		return fmt.Errorf("there is no operation %d", op.Kind)
	}
	l.undo = append(l.undo, change{op.Dst, old})
	l.set(op.Dst, cells)
	return nil
}

// set gives a sequence other cells.
func (l *ledger) set(seq engine.Seq, cells []int32) {
	for _, c := range cells {
		if l.refs[c] == 0 {
			l.used++
		}
		l.refs[c]++
	}
	for _, c := range l.seqs[seq] {
		if l.refs[c]--; l.refs[c] == 0 {
			l.used--
			l.free = append(l.free, c)
		}
	}
	l.seqs[seq] = cells
}

func (l *ledger) has(seq engine.Seq) bool { return seq >= 0 && int(seq) < len(l.seqs) }

// checkItems returns the number of tokens of items, or what the library would refuse or assert.
func (l *ledger) checkItems(items []engine.Item, vocab, mostTokens, mostLogits int) (int, error) {
	clear(l.seen)
	tokens, logits := 0, 0
	for i, it := range items {
		switch {
		case !l.has(it.Seq):
			return 0, fmt.Errorf("item %d: there is no sequence %d of %d", i, it.Seq, len(l.seqs))
		case l.seen[it.Seq]:
			return 0, fmt.Errorf("item %d: sequence %d has another item in the batch", i, it.Seq)
		case len(it.Tokens) == 0:
			return 0, fmt.Errorf("item %d: sequence %d has no tokens", i, it.Seq)
		case it.Pos != len(l.seqs[it.Seq]):
			return 0, fmt.Errorf("item %d: sequence %d has %d cells, the item starts at %d", i, it.Seq, len(l.seqs[it.Seq]), it.Pos)
		}
		for _, t := range it.Tokens {
			if t < 0 || int(t) >= vocab {
				return 0, fmt.Errorf("item %d: there is no token %d of %d", i, t, vocab)
			}
		}
		l.seen[it.Seq] = true
		tokens += len(it.Tokens)
		if it.Logits {
			logits++
		}
	}
	if tokens > mostTokens || logits > mostLogits {
		return 0, fmt.Errorf("the batch has %d tokens and %d logits, expected at most %d and %d", tokens, logits, mostTokens, mostLogits)
	}
	return tokens, nil
}
