package queue

// heap is a binary heap whose items know where they lie, so that any of them can leave in O(log n).
type heap[T any] struct {
	items []*T
	less  func(a, b *T) bool
	at    func(*T) *int // where an item keeps its place, counted from 1; 0: it is not in the heap
}

func (h *heap[T]) has(x *T) bool { return *h.at(x) > 0 }

// top is the least item, or nil.
func (h *heap[T]) top() *T {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap[T]) push(x *T) {
	h.items = append(h.items, x)
	h.up(len(h.items)-1, x)
}

// fix finds x its place after it has changed.
func (h *heap[T]) fix(x *T) {
	i := *h.at(x) - 1
	if h.up(i, x) == i {
		h.down(i, x)
	}
}

// remove takes x out, where it is in.
func (h *heap[T]) remove(x *T) {
	i, last := *h.at(x)-1, len(h.items)-1
	if i < 0 {
		return
	}
	moved := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	*h.at(x) = 0
	if i < last {
		h.set(i, moved)
		h.fix(moved)
	}
}

// up puts x, which may be at i, there or above it; it returns where.
func (h *heap[T]) up(i int, x *T) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(x, h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, x)
	return i
}

func (h *heap[T]) down(i int, x *T) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.less(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.less(h.items[child], x) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, x)
}

func (h *heap[T]) set(i int, x *T) {
	h.items[i] = x
	*h.at(x) = i + 1
}

// order is one of the orders in which entries are linked.
type order int

const (
	byArrival order = iota // all of a queue
	inFlow                 // those of a tenant
	amongLate              // those of a class that can't be in time
	orders
)

type link struct{ prev, next *Entry }

// list links entries in one order. An entry is in at most one list of each order.
type list struct {
	order       order
	first, last *Entry
	n           int
}

func (l *list) has(e *Entry) bool { return e.links[l.order].prev != nil || l.first == e }

func (l *list) next(e *Entry) *Entry { return e.links[l.order].next }

// push adds e at the end.
func (l *list) push(e *Entry) { l.insert(e, func(*Entry) bool { return false }) }

// insert adds e before those at the end that passes holds for.
func (l *list) insert(e *Entry, passes func(*Entry) bool) {
	prev, next := l.last, (*Entry)(nil)
	for prev != nil && passes(prev) {
		prev, next = prev.links[l.order].prev, prev
	}
	e.links[l.order] = link{prev, next}
	if prev == nil {
		l.first = e
	} else {
		prev.links[l.order].next = e
	}
	if next == nil {
		l.last = e
	} else {
		next.links[l.order].prev = e
	}
	l.n++
}

// remove takes e out. It must be in the list.
func (l *list) remove(e *Entry) {
	at := e.links[l.order]
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[l.order].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[l.order].prev = at.prev
	}
	e.links[l.order] = link{}
	l.n--
}
