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
func (c *Cache) Ops() []Op { return nil }

// Unrun takes back the last Ops: the device refused the step and ran none of them. They come first in the next Ops.
func (c *Cache) Unrun() {}
