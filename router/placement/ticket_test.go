package placement

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestATicketThatEndsTwiceChangesNothing(t *testing.T) {
	b := board(Options{}, 2)
	for i := range 2 {
		b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), Load{Running: 1, KVTotal: count(1e6), KVUsed: count(1000), Backlog: count(700)}, epoch)
	}
	k := place(t, b, ask("r", "k", text("a", 8000)), epoch)
	other := place(t, b, ask("s", "k", text("b", 8000)), epoch)
	k.Ended(Result{}, epoch)
	before := fmt.Sprintf("%+v %+v %+v", *k.live, *other.live, k.state.answer)
	k.Ended(Result{Answered: true, PromptTokens: 10, CompletionTokens: 1000}, epoch)
	k.FirstToken(at(time.Second))
	k.Accepted(17, at(time.Second))
	if after := fmt.Sprintf("%+v %+v %+v", *k.live, *other.live, k.state.answer); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
}

// fleet is a board under random use.
type fleet struct {
	board   *Board
	now     time.Time
	open    []*Ticket
	started int
	epochs  [3]int // instances of the pods
}

func (f *fleet) workers(t *rapid.T) []Worker {
	ws := workers(3)
	for i := range ws {
		ws[i].Instance += "-" + strconv.Itoa(f.epochs[i])
		ws[i].Suspect = rapid.Bool().Draw(t, "suspect")
		ws[i].InRing = rapid.IntRange(0, 3).Draw(t, "in ring") > 0
	}
	return ws
}

func (f *fleet) report(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "worker")
	l := Load{Running: rapid.IntRange(0, 9).Draw(t, "running"), Waiting: rapid.IntRange(0, 5).Draw(t, "waiting"), Seats: 4}
	for _, k := range f.open {
		if rapid.Bool().Draw(t, "named") {
			l.RequestIDs = append(l.RequestIDs, k.decision.RequestID)
		}
	}
	if rapid.Bool().Draw(t, "full") {
		l.Backlog, l.KVTotal, l.KVUsed = count(rapid.Uint64().Draw(t, "backlog")), count(1e6), count(rapid.Uint64Range(0, 2e6).Draw(t, "used"))
		l.Prefill, l.Decode = rate(rapid.Float64().Draw(t, "prefill")), rate(rapid.Float64().Draw(t, "decode"))
	}
	f.board.Observe(uid, "w"+strconv.Itoa(i), fmt.Sprintf("i%d-%d", i, f.epochs[i]), l, f.now)
}

// end draws a ticket and ends it, sometimes twice.
func (f *fleet) end(t *rapid.T) {
	if len(f.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(f.open)-1).Draw(t, "ticket")
	k := f.open[i]
	f.open = append(f.open[:i:i], f.open[i+1:]...)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		k.Ended(Result{Answered: rapid.Bool().Draw(t, "answered"), PromptTokens: rapid.Uint32().Draw(t, "prompt"),
			CachedTokens: rapid.Uint32().Draw(t, "cached"), CompletionTokens: rapid.Uint32Range(0, 9000).Draw(t, "completion")}, f.now)
	}
}

func (f *fleet) place(t *rapid.T) {
	f.started++
	q := ask("r"+strconv.Itoa(f.started), strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "key")), text("p", rapid.IntRange(0, 3000).Draw(t, "bytes")))
	if rapid.Bool().Draw(t, "excluded") {
		q.Exclude = []Process{{Pod: "w" + strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "who"))}}
	}
	k, err := f.board.Place(q, f.now)
	if err != nil {
		return
	}
	f.open = append(f.open, k)
	if w, _ := f.board.View(uid).Worker(k.Worker().Pod); !w.InRing || len(q.Exclude) > 0 && q.Exclude[0].Pod == w.Pod || w.Instance != k.Worker().Instance {
		t.Fatalf("%+v got it, without %v", k.Worker(), q.Exclude)
	}
}

func (f *fleet) step(t *rapid.T) {
	f.now = f.now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
	switch rapid.SampledFrom([]string{"place", "place", "end", "accept", "first", "report", "set"}).Draw(t, "do") {
	case "place":
		f.place(t)
	case "end":
		f.end(t)
	case "report":
		f.report(t)
	case "set":
		if rapid.Bool().Draw(t, "restart") {
			f.epochs[rapid.IntRange(0, 2).Draw(t, "pod")]++
		}
		f.board.Set(of(f.workers(t)), nodes, f.now)
	case "accept":
		if len(f.open) > 0 {
			rapid.SampledFrom(f.open).Draw(t, "ticket").Accepted(rapid.Uint32().Draw(t, "tokens"), f.now)
		}
	case "first":
		if len(f.open) > 0 {
			rapid.SampledFrom(f.open).Draw(t, "ticket").FirstToken(f.now)
		}
	}
}

// sane fails when a worker's figures can't be.
func (f *fleet) sane(t *rapid.T) {
	for pod, l := range lives(f.board) {
		ahead, pace := l.ahead(f.now), l.pace
		switch {
		case l.own < 0, l.others < 0, l.outstanding < 0, l.freshWork < 0, l.freshWork > l.outstanding, l.freshNeed < 0, l.foreign < 0,
			!(ahead >= 0), ahead > float64(l.outstanding+l.foreign)+0.5, !(pace > 0.9*fastest && pace < 1.1*slowest):
			t.Fatalf("%s: %+v", pod, *l)
		}
	}
	if k := f.board.Levels(uid, f.now); !(k.KVPercent >= -1 && k.KVPercent <= 100) || k.Running < 0 || k.Waiting < 0 {
		t.Fatalf("%+v", k)
	}
}

func TestAccountsReturnToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{board: board(Options{}, 0), now: epoch}
		f.board.Set(of(f.workers(t)), nodes, f.now)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.step(t)
			f.sane(t)
		}
		for len(f.open) > 0 {
			f.end(t)
		}
		f.sane(t)
		for pod, l := range lives(f.board) {
			if l.own != 0 || l.open != nil || l.outstanding != 0 || l.freshWork != 0 || l.freshNeed != 0 || l.ahead(f.now) > float64(l.foreign) {
				t.Fatalf("%s is left with %+v", pod, *l)
			}
		}
	})
}

func TestEqualHistoriesGiveEqualPlaces(t *testing.T) {
	for _, policy := range policies {
		var first []string
		for run := range 3 {
			b := board(Options{Policy: policy}, 5)
			var got []string
			for i := range 200 {
				now := at(time.Duration(i) * 100 * time.Millisecond)
				id := strconv.Itoa(i)
				k := place(t, b, ask(id, strconv.Itoa(i%7), text(strconv.Itoa(i%11), 100*(i%13))), now)
				got = append(got, k.Worker().Pod)
				if i%3 > 0 {
					k.FirstToken(now)
					k.Ended(Result{Answered: true, PromptTokens: 100, CachedTokens: 10, CompletionTokens: 30}, now.Add(50*time.Millisecond))
				}
			}
			if run == 0 {
				first = got
			} else if strings.Join(got, " ") != strings.Join(first, " ") {
				t.Errorf("%s: %v, then %v", policy.Name(), first, got)
			}
		}
	}
}
