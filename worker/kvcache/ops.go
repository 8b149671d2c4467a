package kvcache

// OpKind is a kind of change to the device's cells.
type OpKind int

// The changes.
const (
	// OpFork makes Dst share the first N cells of Src, and hold no others.
	OpFork OpKind = iota
	// OpTruncate leaves the first N cells of Dst.
	OpTruncate
	// OpDrop frees Dst.
	OpDrop
)

// Op is one change to the device's cells; N counts tokens. It maps to engine.KVOp field by field.
type Op struct {
	Kind     OpKind
	Src, Dst int
	N        int
}

// Ops returns the changes since the last call, in order. They must run before the next forward pass and before any cell is
// taken. The slice is valid until the next call.
func (c *Cache) Ops() []Op {
	c.pending, c.handed = c.handed[:0], c.pending
	return c.handed
}

// Unrun takes back the last Ops: the device refused the step and ran none of them. They come first in the next Ops.
func (c *Cache) Unrun() {
	c.pending = append(c.handed, c.pending...)
	c.handed = nil
}

// emit adds an operation. One that makes its predecessor pointless takes its place.
func (c *Cache) emit(op Op) {
	if n := len(c.pending); n > 0 && c.pending[n-1].Dst == op.Dst && (op.Kind != OpTruncate || c.pending[n-1].Kind != OpFork) {
		c.pending[n-1] = op
		return
	}
	c.pending = append(c.pending, op)
}

func (c *Cache) truncate(s *sequence, tokens int) {
	c.emit(Op{Kind: OpTruncate, Dst: int(s.id), N: tokens})
}

func (c *Cache) fork(src, dst *sequence, tokens int) {
	if tokens > 0 {
		c.count.Forks++
		c.emit(Op{Kind: OpFork, Src: int(src.id), Dst: int(dst.id), N: tokens})
	}
}
