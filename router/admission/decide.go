// Package admission decides whether a request enters now, waits, is refused, or is held until there is a worker. It sees
// the bands, the level of the request's model and the request's tier, and nothing else: it has no lock, no goroutine and
// no clock. It never places a request (package placement does) and never keeps one waiting (package queue does).
package admission

import (
	"fmt"
	"time"
)

// Bands are the levels, in per cent, at which the treatment of requests changes. Each is at least as high as the one
// before it.
type Bands struct {
	WatchPercent    int // from here on people look; all requests enter
	ScaleOutPercent int // from here on workers are added; all requests enter
	AdmitPercent    int // from here on a request's tier decides
	RefusePercent   int // from here on no request enters
}

// DefaultBands are the bands of an InferenceRouter that names none.
func DefaultBands() Bands {
	return Bands{WatchPercent: 75, ScaleOutPercent: 80, AdmitPercent: 90, RefusePercent: 95}
}

// WhenBusy is what a tier gets from AdmitPercent on.
type WhenBusy string

// What a tier may get. Any other value, the empty one too, is as good as WhenBusyQueue.
const (
	WhenBusyFirst  WhenBusy = "First"  // enters, and waits only from RefusePercent on
	WhenBusyQueue  WhenBusy = "Queue"  // waits
	WhenBusyRefuse WhenBusy = "Refuse" // never waits for room: it is refused
)

// Tier is the class of service of a request.
type Tier struct {
	Name string
	// Priority orders those who wait: the higher goes first.
	Priority int32
	WhenBusy WhenBusy
	// MaxQueue bounds how long a request waits for room, MaxQueueRequests how many of the tier do so for one model.
	// 0 leaves it to the queue's own limits.
	MaxQueue         time.Duration
	MaxQueueRequests int
}

// Levels say how full a model is, as this router sees it.
type Levels struct {
	// KVPercent is how much of the KV cache of the workers in the ring is used or promised. Below 0: unknown.
	KVPercent float64
	// InRing counts the workers that requests may be placed on, Candidates the pods that there are.
	InRing, Candidates int
	// Running and Waiting count requests on the workers in the ring, and Seats how many these run at once. Seats 0:
	// unknown. They speak where KVPercent does not.
	Running, Waiting, Seats int
	// Queued counts the requests at this router that wait and whose priority is not below that of the request which is
	// decided on. Such a request does not overtake them.
	Queued int
}

// Percent is how full the workers are: their KV cache; where that is unknown, their seats; and where these are unknown
// too, what waits at them: AdmitPercent when anything does, RefusePercent when no more run than wait.
func (l Levels) Percent(b Bands) float64 {
	switch {
	case l.KVPercent >= 0: // false for a NaN, which is as good as unknown
		return l.KVPercent
	case l.Seats > 0:
		return 100 * float64(l.Running+l.Waiting) / float64(l.Seats)
	case l.Waiting <= 0:
		return 0
	case l.Waiting >= l.Running:
		return float64(b.RefusePercent)
	}
	return float64(b.AdmitPercent)
}

// Band is the name of a range of levels.
type Band int

// The bands, from empty to full.
const (
	Open     Band = iota // below WatchPercent
	Watch                // below ScaleOutPercent
	ScaleOut             // below AdmitPercent
	Admit                // below RefusePercent
	Full
)

// String is the band's name.
func (b Band) String() string {
	if b < Open || b > Full {
		return fmt.Sprintf("Band(%d)", int(b))
	}
	return [...]string{"Open", "Watch", "ScaleOut", "Admit", "Full"}[b]
}

// Band is the one that a level of percent lies in.
func (b Bands) Band(percent float64) Band {
	switch {
	case percent >= float64(b.RefusePercent):
		return Full
	case percent >= float64(b.AdmitPercent):
		return Admit
	case percent >= float64(b.ScaleOutPercent):
		return ScaleOut
	case percent >= float64(b.WatchPercent):
		return Watch
	}
	return Open
}

// Verdict is what happens to a request.
type Verdict int

// The verdicts.
const (
	Enter  Verdict = iota // it may be placed now
	Queue                 // it waits for room
	Refuse                // it is turned away
	Hold                  // it waits for any worker
)

// String is the verdict's name.
func (v Verdict) String() string {
	if v < Enter || v > Hold {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return [...]string{"Enter", "Queue", "Refuse", "Hold"}[v]
}

// Decide judges a request of tier t for a model at levels l.
func Decide(b Bands, l Levels, t Tier) Verdict {
	if l.InRing <= 0 {
		return Hold
	}
	if l.Queued <= 0 && enters(b.Band(l.Percent(b)), t.WhenBusy) {
		return Enter
	}
	return t.Busy()
}

// enters says whether a tier enters in a band when nobody waits before it.
func enters(band Band, when WhenBusy) bool {
	return band < Admit || band == Admit && when == WhenBusyFirst
}

// Busy is the verdict on a request that finds no room.
func (t Tier) Busy() Verdict {
	if t.WhenBusy == WhenBusyRefuse {
		return Refuse
	}
	return Queue
}
