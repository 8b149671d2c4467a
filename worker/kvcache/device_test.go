package kvcache

import "fmt"

// device does what an Executor does with cells: a cell is computed once, belongs to any number of sequences, and is free
// when none holds it. It refuses what a real one would refuse.
type device struct {
	seqs [][]*cell
}

// cell is one token's keys and values, which depend on the key and on every token before it.
type cell struct {
	key    Key
	prefix *cell
	token  Token
}

func newDevice(sequences int) *device { return &device{seqs: make([][]*cell, sequences)} }

// run executes operations.
func (d *device) run(ops []Op) error {
	for _, op := range ops {
		switch op.Kind {
		case OpFork:
			if op.Src == op.Dst || op.N > len(d.seqs[op.Src]) {
				return fmt.Errorf("%v: sequence %d has %d cells", op, op.Src, len(d.seqs[op.Src]))
			}
			d.seqs[op.Dst] = append([]*cell(nil), d.seqs[op.Src][:op.N]...)
		case OpTruncate:
			d.seqs[op.Dst] = d.seqs[op.Dst][:min(op.N, len(d.seqs[op.Dst]))]
		case OpDrop:
			d.seqs[op.Dst] = nil
		default:
			return fmt.Errorf("there is no operation %v", op)
		}
	}
	return nil
}

// compute takes new cells for tokens that follow the ones of a sequence, which must be pos.
func (d *device) compute(seq, pos int, k Key, tokens []Token) error {
	if len(d.seqs[seq]) != pos {
		return fmt.Errorf("sequence %d has %d cells, the tokens start at %d", seq, len(d.seqs[seq]), pos)
	}
	for _, t := range tokens {
		c := &cell{key: k, token: t}
		if n := len(d.seqs[seq]); n > 0 {
			c.prefix = d.seqs[seq][n-1]
		}
		d.seqs[seq] = append(d.seqs[seq], c)
	}
	return nil
}

// holds says how the cells of a sequence differ from what computing tokens under k alone would give.
func (d *device) holds(seq int, k Key, tokens []Token) error {
	cells := d.seqs[seq]
	if len(cells) != len(tokens) {
		return fmt.Errorf("sequence %d has %d cells for %d tokens", seq, len(cells), len(tokens))
	}
	var before *cell
	for i, c := range cells {
		if c.key != k || c.token != tokens[i] || c.prefix != before {
			return fmt.Errorf("sequence %d has the cell of token %d under %v at %d, expected that of %d under %v", seq, c.token, c.key, i, tokens[i], k)
		}
		before = c
	}
	return nil
}

// cells is the number of cells that are taken.
func (d *device) cells() int {
	taken := map[*cell]bool{}
	for _, s := range d.seqs {
		for _, c := range s {
			taken[c] = true
		}
	}
	return len(taken)
}
