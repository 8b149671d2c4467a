package kvcache

// Table is the blocks of one running sequence. It belongs to the Cache that made it and must not be used after Close.
type Table struct {
	seq, cached, computed int
	blocks                []int32
}

// Seq is the device's sequence that holds the cells.
func (t *Table) Seq() int { return t.seq }

// Len is the number of computed tokens.
func (t *Table) Len() int { return t.computed }

// Cached is the number of tokens that Open found.
func (t *Table) Cached() int { return t.cached }

// Blocks is the number of blocks that the table holds, shared ones included.
func (t *Table) Blocks() int { return len(t.blocks) }
