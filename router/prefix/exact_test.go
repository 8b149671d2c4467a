package prefix

import (
	"strconv"
	"testing"
)

// exactly is an index of one worker that says what goes out of its cache, and the prompts that it has said to have.
func exactly(chains ...Chain) (*Index, Slot) {
	x := newIndex(500, 500, 4)
	s := x.Slot("a")
	x.SetExact(s, true)
	for _, c := range chains {
		x.Insert(s, c)
		x.Hold(s, c, len(c), true)
	}
	return x, s
}

// said is what a worker says that it still has of a prompt.
func said(c Chain, held int) News { return News{Hash: c[len(c)-1], Blocks: len(c), Held: held} }

// yielded is that, where the worker follows another prompt in its place.
func yielded(c Chain, held int, heir Chain) News {
	return News{Hash: c[len(c)-1], Blocks: len(c), Held: held, Heir: heir[len(heir)-1]}
}

func TestWhatAWorkerSaysHasGoneIsGoneButForWhatItHasOfOthers(t *testing.T) {
	shared := chain(text("shared", 100))
	first, second := chain(text("shared", 100)+text("first", 90)), chain(text("shared", 100)+text("second", 90))
	unknown := chain(text("unknown", 5))
	for name, c := range map[string]struct {
		news                  []News
		shared, first, second int
	}{
		"a part of one prompt's own":           {[]News{said(first, 150)}, 100, 150, 190},
		"all of one prompt's own":              {[]News{said(first, 100)}, 100, 100, 190},
		"the middle of what both share":        {[]News{said(first, 50)}, 100, 100, 190},
		"the same of both":                     {[]News{said(first, 50), said(second, 50)}, 50, 50, 50},
		"different of both":                    {[]News{said(first, 20), said(second, 50)}, 50, 50, 50},
		"all":                                  {[]News{said(second, 0), said(first, 0)}, 0, 0, 0},
		"nothing":                              {[]News{said(first, 190)}, 100, 190, 190},
		"what another one stands for":          {[]News{yielded(first, 100, second)}, 100, 100, 190},
		"what another one stands for in part":  {[]News{yielded(first, 190, second)}, 100, 100, 190},
		"what the other one then loses":        {[]News{yielded(first, 100, second), said(second, 40)}, 40, 40, 40},
		"what an unknown one stands for":       {[]News{said(first, 150), yielded(first, 150, unknown)}, 100, 100, 190},
		"all that only an unknown one has now": {[]News{yielded(first, 100, unknown), yielded(second, 100, unknown)}, 0, 0, 0},
		"a prompt that was never sent":         {[]News{{Hash: 7, Blocks: 190, Held: 0}}, 100, 190, 190},
		"a length that it does not have":       {[]News{{Hash: first[189], Blocks: 189, Held: 0}}, 100, 190, 190},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := exactly(first, second)
			other := x.Slot("b")
			x.Insert(other, first)
			for _, n := range c.news {
				x.Hear(s, n)
			}
			for i, want := range []int{c.shared, c.first, c.second} {
				if got := x.Match([]Chain{shared, first, second}[i], []Slot{s}, nil)[0]; got != want {
					t.Errorf("prompt %d: %d blocks, want %d", i, got, want)
				}
			}
			if got := x.Match(first, []Slot{other}, nil)[0]; got != len(first) {
				t.Errorf("the other worker has %d blocks of %d", got, len(first))
			}
			if err := sound(&x.tree); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatIsLeftOfAPromptCanStillGo: what had gone first is in no tree any more.
func TestWhatIsLeftOfAPromptCanStillGo(t *testing.T) {
	c, short, other := chain(text("prompt", 100)), chain(text("prompt", 30)), chain(text("prompt", 30)+text("other", 5))
	x, s := exactly(c)
	x.Hear(s, said(c, 30))
	x.Insert(x.Slot("b"), other) // parts the run where nobody has what follows
	for _, left := range []int{20, 10, 0} {
		x.Hear(s, said(c, left))
		if got := x.Match(short, []Slot{s}, nil)[0]; got != left {
			t.Errorf("%d blocks, want %d", got, left)
		}
	}
}

func TestWhatComesBackOfAPromptCanGoAgain(t *testing.T) {
	c := chain(text("prompt", 100))
	x, s := exactly(c)
	x.Hear(s, said(c, 0))
	x.Hold(s, c, 70, true)
	for _, left := range []int{70, 40} {
		x.Hear(s, said(c, left))
		if got := x.Match(c, []Slot{s}, nil)[0]; got != left {
			t.Errorf("%d blocks, want %d", got, left)
		}
	}
}

func TestAnAnswerBringsNothingBackThatHasGoneSince(t *testing.T) {
	c := chain(text("prompt", 100))
	x, s := exactly()
	claim := x.Insert(s, c)
	x.Hold(s, c, len(c), true)
	x.Hear(s, said(c, 20))
	x.Settle(s, c, claim, 0)
	if got := x.Match(c, []Slot{s}, nil)[0]; got != 20 {
		t.Errorf("%d blocks, want 20", got)
	}
}

func TestARequestThatWasNeverTakenInLeavesNothing(t *testing.T) {
	before, c, other := chain(text("prompt", 40)), chain(text("prompt", 100)), chain(text("prompt", 60)+text("other", 9))
	for name, r := range map[string]struct {
		taken bool // the other one
		want  int
	}{
		"beside one that was":     {true, 60},
		"beside one that was not": {false, 40},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := exactly(before)
			x.Insert(s, c)
			x.Insert(s, other)
			if r.taken {
				x.Hold(s, other, len(other), true)
			}
			x.Withdraw(s, c)
			if got := x.Match(c, []Slot{s}, nil)[0]; got != r.want {
				t.Errorf("%d blocks, want %d", got, r.want)
			}
			if err := sound(&x.tree); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnExactWorkerForgetsNothingByItself: neither the size of its cache nor a poor answer counts, until it is exact no more.
func TestAnExactWorkerForgetsNothingByItself(t *testing.T) {
	x, s := exactly()
	x.Resize(s, 100)
	var chains []Chain
	for i := range 5 {
		chains = append(chains, chain(text(strconv.Itoa(i), 50)))
		x.Settle(s, chains[i], x.Insert(s, chains[i]), 0)
		x.Settle(s, chains[i], x.Insert(s, chains[i]), 0)
	}
	if got, _ := x.Worker(s); got.Blocks != 250 || got.Believed != 0 {
		t.Errorf("%+v, want 250 blocks and no limit", got)
	}
	x.SetExact(s, false)
	if got, _ := x.Worker(s); got.Blocks != 0 || got.Believed != 100 {
		t.Errorf("%+v, want nothing, and room for 100 blocks", got)
	}
}

// TestWhatWasGuessedOfAWorkerIsNotWhatItSaid: nobody would say what becomes of it.
func TestWhatWasGuessedOfAWorkerIsNotWhatItSaid(t *testing.T) {
	c := chain(text("prompt", 100))
	x, s := exactly()
	x.SetExact(s, false)
	x.Settle(s, c, x.Insert(s, c), 0)
	if !x.SetExact(s, true) || x.Match(c, []Slot{s}, nil)[0] != 0 {
		t.Errorf("%d blocks are known", x.Match(c, []Slot{s}, nil)[0])
	}
	if x.SetExact(s, true) {
		t.Error("it was exact already")
	}
}

// TestOfTooManyPromptsThoseThatWereSentLastAreKnown: the index has room for the ends of 64.
func TestOfTooManyPromptsThoseThatWereSentLastAreKnown(t *testing.T) {
	x := newIndex(64, 500, 4)
	s := x.Slot("a")
	x.SetExact(s, true)
	whole := chain(text("prompt", 200))
	send := func(from, to int) {
		for n := from; n <= to; n++ {
			x.Insert(s, whole[:n])
		}
	}
	send(1, 41)
	x.Insert(s, whole[:1]) // again
	x.Hold(s, whole[:2], 2, true)
	send(42, 82)
	for n, want := range map[int]bool{1: true, 2: false, 19: false, 20: true, 82: true} {
		if got := x.tree.ends.find(whole[n-1]) != 0; got != want {
			t.Errorf("the prompt of %d blocks is known: %t", n, got)
		}
	}
	if err := sound(&x.tree); err != nil {
		t.Error(err)
	}
}

// TestWhatAWorkerSaysOfAPromptThatIsForgottenIsNotWaitedFor: the index has room for the ends of 64 prompts.
func TestWhatAWorkerSaysOfAPromptThatIsForgottenIsNotWaitedFor(t *testing.T) {
	x := newIndex(64, 500, 4)
	s := x.Slot("a")
	x.SetExact(s, true)
	old, kept := chain(text("head", 3)+text("old", 4)), chain(text("head", 3)+text("kept", 4))
	for _, c := range []Chain{old, kept} {
		x.Insert(s, c)
		x.Hold(s, c, len(c), true)
	}
	whole := chain(text("prompt", 70))
	for n := 1; n <= 63; n++ { // few runs
		x.Insert(s, whole[:n])
		x.Hold(s, whole[:n], n, true)
	}
	for i, want := range []int{3, 7} {
		if got := x.Match([]Chain{old, kept}[i], []Slot{s}, nil)[0]; got != want {
			t.Errorf("of prompt %d %d blocks are known, want %d", i, got, want)
		}
	}
	if err := sound(&x.tree); err != nil {
		t.Error(err)
	}
}

// BenchmarkCutADeepTree is how long it takes to cut a prompt that goes on in many runs, one behind the other.
func BenchmarkCutADeepTree(b *testing.B) {
	whole := chain(text("prompt", 16000))
	x := New(Options{})
	s := x.Slot("a")
	x.SetExact(s, true)
	for b.Loop() {
		b.StopTimer()
		for n := 8; n <= len(whole); n += 8 {
			x.Insert(s, whole[:n])
		}
		b.StartTimer()
		x.Withdraw(s, whole)
	}
}
