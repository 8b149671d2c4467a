package placement

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// teller is the one worker of a board, which says what goes out of its cache.
type teller struct {
	t *testing.T
	b *Board
}

func newTeller(t *testing.T) *teller {
	w := &teller{t, board(Options{}, 1)}
	w.report()
	return w
}

func (w *teller) report(prompts ...Prompt) { w.load(Load{Exact: true, Prompts: prompts}) }

func (w *teller) load(l Load) {
	l.KVTotal = count(100000)
	w.b.Observe(uid, "w0", "i0", l, epoch)
}

// send places a request.
func (w *teller) send(id, prompt string) *Ticket {
	w.t.Helper()
	return place(w.t, w.b, ask(id, "k", prompt), epoch)
}

// taken lets the worker take a request.
func taken(k *Ticket, number uint64) *Ticket {
	k.Numbered(number)
	k.Accepted(1000, epoch)
	return k
}

func answer(k *Ticket) {
	k.Ended(Result{Answered: true, PromptTokens: 1000, CompletionTokens: 1}, epoch)
}

// failed ends a request that the worker has never taken.
func failed(k *Ticket) { k.Ended(Result{}, epoch) }

// came is what a worker says of a prompt with a request inside.
func came(prompt string, number uint64) Prompt {
	c := chain(prompt)
	return Prompt{Hash: c[len(c)-1], Blocks: len(c), Number: number}
}

// left is what a worker says of one without.
func left(prompt string, held int, number uint64) Prompt {
	p := came(prompt, number)
	p.Left, p.Lost = true, p.Blocks-held
	return p
}

func heir(p Prompt, of string) Prompt {
	c := chain(of)
	p.Heir = c[len(c)-1]
	return p
}

// wants compares how many blocks of a prompt the board thinks that the worker has, by the index and by what it has named.
func (w *teller) wants(prompt string, want int) {
	w.t.Helper()
	v, c := w.b.View(uid), chain(prompt)
	m := v.pods["w0"]
	got := w.b.index.Match(c, []prefix.Slot{m.slot}, nil)
	sent := got[0]
	v.state.computed.match(c, []*member{m}, got)
	if sent != want || got[0] != want {
		w.t.Errorf("by what was sent %d blocks, by what the worker has named too %d; want %d", sent, got[0], want)
	}
}

// head is 100 blocks, a and b are 10 more of their own.
var head, a, b = text("head", 6400), text("head", 6400) + text("a", 640), text("head", 6400) + text("b", 640)

func TestARequestThatIsRefusedLeavesWhatTheWorkerHasSaidAndNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *teller)
		want int // of a
	}{
		"two with one prompt": {func(w *teller) {
			one, two := w.send("1", a), w.send("2", a)
			failed(one)
			failed(two)
		}, 0},
		"one beside another that is on its way": {func(w *teller) {
			one := w.send("1", b)
			w.send("2", a)
			failed(one)
		}, 110},
		"one whose prompt went meanwhile": {func(w *teller) {
			answer(taken(w.send("1", a), 1))
			w.report(left(a, 110, 2))
			again := w.send("2", a)
			w.report(left(a, 0, 3))
			failed(again)
		}, 0},
		"one that hung while another with its head was told": {func(w *teller) {
			one := w.send("1", b)
			answer(taken(w.send("2", a), 1))
			w.report(left(a, 110, 2))
			failed(one)
		}, 110},
		"one of which the report has come before the answer": {func(w *teller) {
			one := w.send("1", a)
			w.report(left(a, 0, 9))
			taken(one, 5)
			answer(one)
		}, 0},
		"one of which that report says that a part is there": {func(w *teller) {
			one := w.send("1", a)
			w.report(left(a, 60, 9))
			answer(taken(one, 5))
		}, 60},
		"one of which the word may have been missed": {func(w *teller) {
			one := w.send("1", a)
			w.load(Load{Exact: true, Missed: 7})
			taken(one, 5)
		}, 0},
		"one that came after all that was heard": {func(w *teller) {
			one := w.send("1", a)
			w.report(left(a, 0, 9))
			taken(one, 10)
		}, 110},
		"one that the worker does not follow": {func(w *teller) { answer(taken(w.send("1", a), 0)) }, 0},
		"one of whose prompt the worker has a part": {func(w *teller) {
			answer(taken(w.send("1", head), 1))
			answer(taken(w.send("2", a), 0))
		}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTeller(t)
			c.do(w)
			w.wants(a, c.want)
			w.report()
			w.wants(a, c.want)
		})
	}
}

func TestWhatIsSaidOfOnePromptTakesNothingOfAnother(t *testing.T) {
	for name, do := range map[string]func(w *teller){
		"one that was taken since":         func(w *teller) { taken(w.send("2", b), 3); w.report(left(a, 0, 2)) },
		"one that is inside":               func(w *teller) { taken(w.send("2", b), 2); w.report(left(a, 0, 3)) },
		"one that is on its way":           func(w *teller) { w.send("2", b); w.report(left(a, 0, 2)) },
		"one that has left":                func(w *teller) { answer(taken(w.send("2", b), 2)); w.report(left(b, 110, 3), left(a, 0, 4)) },
		"one that has ended, but not left": func(w *teller) { answer(taken(w.send("2", b), 2)); w.report(left(a, 0, 3)) },
		"one answered late, with one head": func(w *teller) { k := w.send("2", b); w.report(left(a, 0, 3)); taken(k, 2) },
		"an old word told again": func(w *teller) {
			w.report(left(a, 0, 2))
			answer(taken(w.send("2", b), 3))
			w.report(left(a, 0, 2), left(b, 110, 4))
		},
		"one that another one is heir to": func(w *teller) {
			answer(taken(w.send("2", b), 2))
			w.report(left(b, 110, 3), heir(left(a, 100, 4), b))
		},
		"one that had been cut and returns": func(w *teller) {
			answer(taken(w.send("2", b), 2))
			w.report(left(a, 0, 3))
			w.report(left(b, 110, 4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTeller(t)
			answer(taken(w.send("1", a), 1))
			w.report(left(a, 110, 1))
			do(w)
			w.wants(b, 110)
		})
	}
}

// TestAPromptThatIsThereIsThereWhateverWasSaidOfOneThatGoesOn: it was inside then.
func TestAPromptThatIsThereIsThereWhateverWasSaidOfOneThatGoesOn(t *testing.T) {
	w := newTeller(t)
	answer(taken(w.send("1", a), 1))
	w.report(left(a, 110, 2))
	answer(taken(w.send("2", head), 3))
	w.report(left(a, 50, 4), left(head, 100, 5))
	w.wants(head, 100)
}

// TestANewStreamThatTellsAllAgainTakesNothing: what it tells was heard, and what came since was not told again.
func TestANewStreamThatTellsAllAgainTakesNothing(t *testing.T) {
	w := newTeller(t)
	answer(taken(w.send("1", a), 1))
	w.report(came(a, 1))
	w.report(left(a, 40, 2))
	answer(taken(w.send("2", a), 3))
	w.report(left(a, 110, 4))
	w.report(left(a, 40, 2), left(a, 110, 4))
	w.wants(a, 110)
}

func TestWhatMayNotHaveBeenToldIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		gap        Load
		a, b, both int // blocks that are known, of b while its request is on its way, and of the head after it has failed
	}{
		"something was missed":                {Load{Exact: true, Missed: 7}, 100, 110, 0},
		"all that was missed was heard":       {Load{Exact: true, Missed: 2}, 110, 110, 110},
		"it does not follow its cache longer": {Load{}, 100, 110, 110},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTeller(t)
			answer(taken(w.send("1", a), 1))
			w.report(left(a, 110, 2))
			one := w.send("2", b)
			w.load(c.gap)
			w.wants(a, c.a)
			w.wants(b, c.b)
			w.report()
			failed(one)
			if c.gap.Exact {
				w.wants(a, c.both)
			}
			w.load(Load{Exact: true, Missed: c.gap.Missed})
			answer(taken(w.send("3", a), 9))
			w.wants(a, 110)
		})
	}
}

func TestAPromptWhoseHeirIsUnknownIsNotWaitedFor(t *testing.T) {
	w := newTeller(t)
	answer(taken(w.send("1", a), 1))
	w.report(left(a, 110, 2))
	w.report(heir(left(a, 110, 3), text("another router's", 6400)))
	w.wants(a, 0)
}

// TestOfTooManyThatHaveEndedTheOldestIsNotKept: a worker that never says that a request has left holds no memory.
func TestOfTooManyThatHaveEndedTheOldestIsNotKept(t *testing.T) {
	w := newTeller(t)
	for i := range 3 * mostOver {
		answer(taken(w.send("1", text(string(rune('a'+i)), 640)), uint64(i+1)))
	}
	v := &w.b.View(uid).pods["w0"].live.visits
	if len(v.over) > mostOver || len(v.of) > mostOver {
		t.Errorf("%d visits are kept, %d of them known", len(v.over), len(v.of))
	}
}

// TestWhateverComesAtOnceNothingStaysThatTheWorkerHasNotSaid: requests that are refused, answered late and told of side by side.
func TestWhateverComesAtOnceNothingStaysThatTheWorkerHasNotSaid(t *testing.T) {
	w := newTeller(t)
	var group sync.WaitGroup
	var number atomic.Uint64
	prompts := []string{head, a, b, text("another", 640)}
	refused := func(i, k int) string { return text(fmt.Sprint("refused ", i, " ", k, " "), 640) } // the worker never speaks of it
	for i := range 4 {
		group.Go(func() {
			for k := range 200 {
				p := prompts[(i+k)%len(prompts)]
				if k%4 == 1 {
					p = refused(i, k)
				}
				one, err := w.b.Place(ask(fmt.Sprint(i, "/", k), "k", p), epoch)
				if err != nil {
					t.Error(err)
					return
				}
				if k%2 == 0 {
					answer(taken(one, number.Add(1)))
				} else {
					failed(one)
				}
			}
		})
	}
	group.Go(func() {
		for range 200 {
			for _, p := range prompts {
				w.report(left(p, 0, number.Add(1)))
			}
		}
	})
	group.Wait()
	for _, p := range prompts {
		w.report(left(p, 0, number.Add(1)))
	}
	for i := range 4 {
		for k := 1; k < 200; k += 4 {
			prompts = append(prompts, refused(i, k))
		}
	}
	for _, p := range prompts {
		w.wants(p, 0)
	}
}
