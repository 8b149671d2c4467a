package sim

import (
	"cmp"
	"time"
)

// kind orders what happens at the same moment: requests end and workers report before others ask for a place.
type kind uint8

const (
	end kind = iota
	first
	report
)

// event is something that will happen.
type event struct {
	at     time.Duration
	kind   kind
	order  int // in which the events were foreseen
	job    *Job
	worker int
}

// events is a heap.
type events []event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].kind, e[j].kind), cmp.Compare(e[i].order, e[j].order)) < 0
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is for container/heap.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop is for container/heap.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
