package measure

import (
	"fmt"
	"io"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
)

// progress says how far a run is and how long the rest takes.
type progress struct {
	out   io.Writer
	began time.Time
	done  float64 // seconds of what was done, on idle cores
	left  float64
}

func begin(out io.Writer, chosen []measure, n int, now time.Time) *progress {
	p := &progress{out: out, began: now}
	for _, m := range chosen {
		p.left += m.whole(n)
	}
	return p
}

// whole is how many seconds n pairs take on idle cores.
func (m measure) whole(n int) float64 {
	if m.once {
		return m.pair
	}
	return m.pair * float64(n)
}

// rest is how long the rest takes, if it takes as long as what was done did.
func (p *progress) rest(now time.Time) time.Duration {
	if p.done == 0 {
		return time.Duration(p.left * float64(time.Second))
	}
	return time.Duration(float64(now.Sub(p.began)) * p.left / p.done)
}

// pair tells of pair i of n.
func (p *progress) pair(m measure, i, n int, rows []pairs.Row) {
	p.pass(m.pair)
	goals, held := 0, 0
	for _, r := range rows {
		if r.Goal != "" {
			goals++
			if r.Holds {
				held++
			}
		}
	}
	now := time.Now()
	fmt.Fprintf(p.out, "%s passed, some %s left: %s, pair %d of %d; %d of %d goals hold so far\n",
		clock(now.Sub(p.began)), clock(p.rest(now)), m.name, i, n, held, goals)
}

// pass takes so many seconds from the rest.
func (p *progress) pass(seconds float64) { p.done, p.left = p.done+seconds, p.left-seconds }

func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
