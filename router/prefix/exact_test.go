package prefix

import (
	"strconv"
	"testing"
)

// exactly is an index of one worker that says what goes out of its cache, and the prompts that it was sent.
func exactly(chains ...Chain) (*Index, Slot) {
	x := newIndex(500, 500, 4)
	s := x.Slot("a")
	x.SetExact(s, true)
	for _, c := range chains {
		x.Insert(s, c)
	}
	return x, s
}

// said is what a worker says that it still has of a prompt.
func said(c Chain, held int, number uint64) News {
	return News{Hash: c[len(c)-1], Blocks: len(c), Held: held, Number: number}
}

func TestWhatAWorkerSaysHasGoneIsGoneAndAllBehindItToo(t *testing.T) {
	shared := chain(text("shared", 100))
	first, second := chain(text("shared", 100)+text("first", 90)), chain(text("shared", 100)+text("second", 90))
	for name, c := range map[string]struct {
		news                  []News
		shared, first, second int
	}{
		"a part of one prompt's own":     {[]News{said(first, 150, 1)}, 100, 150, 190},
		"all of one prompt's own":        {[]News{said(first, 100, 1)}, 100, 100, 190},
		"the middle of what both share":  {[]News{said(first, 50, 1)}, 50, 50, 50},
		"all":                            {[]News{said(second, 0, 1)}, 0, 0, 0},
		"nothing":                        {[]News{said(first, 190, 1)}, 100, 190, 190},
		"a prompt that was never sent":   {[]News{{Hash: 7, Blocks: 190, Held: 0}}, 100, 190, 190},
		"a length that it does not have": {[]News{{Hash: first[189], Blocks: 189, Held: 0}}, 100, 190, 190},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := exactly(first, second)
			other := x.Slot("b")
			x.Insert(other, first)
			x.Hear(s, c.news, nil)
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

func TestWhatAWorkerSaidBeforeItTookARequestIsNotSaidOfThatOne(t *testing.T) {
	c := chain(text("prompt", 100))
	for name, r := range map[string]struct {
		number uint64
		want   int
	}{
		"before": {5, 100},
		"after":  {3, 20},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := exactly(c)
			x.Hear(s, []News{said(c, 20, 4)}, []Sent{{Chain: c, Number: r.number}})
			if got := x.Match(c, []Slot{s}, nil)[0]; got != r.want {
				t.Errorf("%d blocks, want %d", got, r.want)
			}
		})
	}
}

// TestWhatIsLeftOfAPromptCanStillGo: what had gone first is in no tree any more.
func TestWhatIsLeftOfAPromptCanStillGo(t *testing.T) {
	c, short, other := chain(text("prompt", 100)), chain(text("prompt", 30)), chain(text("prompt", 30)+text("other", 5))
	x, s := exactly(c)
	x.Hear(s, []News{said(c, 30, 1)}, nil)
	x.Insert(x.Slot("b"), other) // parts the run where nobody has what follows
	for _, left := range []int{20, 10, 0} {
		x.Hear(s, []News{said(c, left, 2)}, nil)
		if got := x.Match(short, []Slot{s}, nil)[0]; got != left {
			t.Errorf("%d blocks, want %d", got, left)
		}
	}
}

func TestAnAnswerBringsNothingBackThatHasGoneSince(t *testing.T) {
	c := chain(text("prompt", 100))
	x, s := exactly()
	claim := x.Insert(s, c)
	x.Hear(s, []News{said(c, 20, 4)}, nil)
	x.Settle(s, c, claim, 0)
	if got := x.Match(c, []Slot{s}, nil)[0]; got != 20 {
		t.Errorf("%d blocks, want 20", got)
	}
}

func TestARequestThatWasNeverTakenInLeavesNothing(t *testing.T) {
	before, c, other := chain(text("prompt", 40)), chain(text("prompt", 100)), chain(text("prompt", 60)+text("other", 9))
	x, s := exactly(before)
	claim := x.Insert(s, c)
	x.Insert(s, other)
	x.Withdraw(s, c, claim, []Sent{{Chain: other}})
	if got := x.Match(c, []Slot{s}, nil)[0]; got != 60 {
		t.Errorf("%d blocks, want the 60 that the other request has", got)
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
	if got, _ := x.Worker(s); got.Blocks != 100 || got.Believed != 100 {
		t.Errorf("%+v, want as many blocks as there is room for", got)
	}
	if got := x.Match(chains[4], []Slot{s}, nil)[0]; got != 50 {
		t.Errorf("%d blocks of what was used last", got)
	}
}

func TestOfTooManyPromptsThoseThatWereSentLastAreKnown(t *testing.T) {
	x := newIndex(64, 64, 4)
	s := x.Slot("a")
	x.SetExact(s, true)
	whole := chain(text("prompt", 1000))
	for n := 1; n <= len(whole); n++ {
		x.Insert(s, whole[:n])
	}
	known := 0
	for _, h := range whole {
		if x.tree.ends.find(h) != 0 {
			known++
		}
	}
	if known != 64 || x.tree.ends.find(whole[len(whole)-1]) == 0 {
		t.Errorf("%d prompts are known, want 64 and the last among them", known)
	}
	if err := sound(&x.tree); err != nil {
		t.Error(err)
	}
}
