package queue

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

func TestComebackTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	var c *comebacks
	var each time.Duration
	datadriven.RunTest(t, "testdata/comebacks", func(t *testing.T, td *datadriven.TestData) string {
		switch td.Cmd {
		case "new":
			c, each = &comebacks{}, duration(t, td.CmdArgs[0].Vals[0])
			return ""
		case "run":
			var out strings.Builder
			for line := range strings.SplitSeq(td.Input, "\n") {
				f := strings.Fields(line)
				row := fmt.Sprintf("%-7s %-16s %s", f[0], strings.Join(f[1:], " "), comeback(t, c, each, epoch.Add(duration(t, f[0])), f[1], f[2:]))
				fmt.Fprintln(&out, strings.TrimRight(row, " "))
			}
			return out.String()
		}
		t.Fatalf("unknown command %q", td.Cmd)
		return ""
	})
}

// comeback plays one event: wait of a time, as often as x says; draw of two chances; or show, which lists the work of the
// seconds to come.
func comeback(t *testing.T, c *comebacks, each time.Duration, now time.Time, what string, words []string) string {
	switch what {
	case "wait":
		n := 1
		if len(words) > 1 {
			n, _ = strconv.Atoi(words[1][1:])
		}
		var told []string
		for range n {
			d := c.book(duration(t, words[0]), each, now).String()
			if len(told) == 0 || told[len(told)-1] != d {
				told = append(told, d)
			}
		}
		return "told " + strings.Join(told, ", then ")
	case "draw":
		return "told " + c.spread(each, now, func() float64 {
			x, _ := strconv.ParseFloat(words[0], 64)
			words = words[1:]
			return x
		}).String()
	case "show":
		c.advance(now)
		var all []string
		for s := range int64(len(c.work)) {
			if w := *c.at(s); w > 0 {
				all = append(all, fmt.Sprintf("in %ds %s", s, w))
			}
		}
		return strings.Join(all, ", ")
	}
	t.Fatalf("unknown event %q", what)
	return ""
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// booking is one that was told to come back: when, and how much work it is.
type booking struct {
	second int64
	work   time.Duration
}

// plainComebacks remembers everybody for ever, and counts anew each time.
type plainComebacks struct {
	now int64
	all []booking
}

func (p *plainComebacks) work(second int64) (sum time.Duration) {
	for _, b := range p.all {
		if b.second == p.now+second {
			sum += b.work
		}
	}
	return sum
}

func (p *plainComebacks) add(second int64, each time.Duration) time.Duration {
	p.all = append(p.all, booking{p.now + second, each})
	return time.Duration(second) * time.Second
}

func (p *plainComebacks) book(wait, each time.Duration) time.Duration {
	best := int64(0)
	for s := int64(1); s <= 60; s++ {
		switch d := time.Duration(s) * time.Second; {
		case d < wait && s < 60, best > 0 && d-time.Second >= wait+wait/5:
		case p.work(s)+each/2 <= time.Second:
			return p.add(s, each)
		case best == 0 || p.work(s) < p.work(best):
			best = s
		}
	}
	return p.add(best, each)
}

func (p *plainComebacks) spread(each time.Duration, a, b float64) time.Duration {
	first, second := 10+int64(a*51), 10+int64(b*51)
	if p.work(second) < p.work(first) {
		first = second
	}
	return p.add(first, each)
}

func TestComebacksAgreeWithANaiveReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 71))
	for history := range 100 {
		c, p := &comebacks{began: epoch}, &plainComebacks{}
		var at time.Duration
		for step := range 300 {
			switch rng.IntN(12) {
			case 0:
				at += time.Duration(rng.IntN(3_000)) * time.Millisecond
			case 1:
				at += time.Duration(rng.IntN(80_000)*rng.IntN(2)) * time.Millisecond
			}
			now := epoch.Add(max(0, at-time.Duration(rng.IntN(20))*time.Millisecond)) // clocks read by several goroutines
			p.now = max(p.now, int64(now.Sub(epoch)/time.Second))
			each := time.Duration(1+rng.IntN([]int{50, 500, 5_000}[rng.IntN(3)])) * time.Millisecond
			var got, want time.Duration
			if rng.IntN(6) == 0 {
				a, b := rng.Float64(), rng.Float64()
				draws := []float64{a, b}
				got = c.spread(each, now, func() float64 {
					x := draws[0]
					draws = draws[1:]
					return x
				})
				want = p.spread(each, a, b)
			} else {
				wait := time.Duration(rng.IntN(70_000)*(1+rng.IntN(4))/4) * time.Millisecond
				got, want = c.book(wait, each, now), p.book(wait, each)
			}
			if got != want {
				t.Fatalf("history %d, step %d: told %s, in the reference %s", history, step, got, want)
			}
		}
	}
}

// The lines of both move alike: one says how long a client has to wait, the other one when it is to come.
func TestNobodyComesTooEarlyOrMuchTooLateOrAfterAMinute(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		lines, r, now := newReturns(), newReturns(), epoch
		for range 2_000 {
			now = now.Add(time.Duration(rng.IntN(400)*rng.IntN(2)) * time.Millisecond)
			tenant, after := strconv.Itoa(rng.IntN(5)), time.Duration(rng.IntN(20_000))*time.Millisecond
			each := time.Duration(1+rng.IntN(300)) * time.Millisecond
			wait := lines.wait(tenant, after, each, now)
			told := r.next(tenant, after, each, now, rng.Float64)
			least, most := wait, wait+wait/5+time.Second
			if wait > latest {
				least, most = earliest, time.Minute
			}
			if told < max(least, time.Second) || told > min(most, time.Minute) || told%time.Second != 0 {
				t.Fatalf("seed %d: it has to wait %s and is told %s", seed, wait, told)
			}
		}
	}
}

func TestThoseWhoNeverComeBackMakeNobodyWaitLonger(t *testing.T) {
	s := newScript(t)
	it := &Item{Tier: tiers["paid"], Tokens: 10}
	first := s.q.Retry(it, false, epoch)
	for i := range 100_000 {
		s.q.Retry(it, false, epoch.Add(time.Duration(i)*time.Millisecond))
	}
	if d := s.q.Retry(it, false, epoch.Add(100*time.Second+latest)); d != first {
		t.Errorf("the first was told %s, and one who comes when all of them should have come back %s", first, d)
	}
}
