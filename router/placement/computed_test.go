package placement

import (
	"testing"
	"time"
)

// said is what a worker says of a prompt that any router sent it.
func said(prompt string) Prompt {
	c := chain(prompt)
	return Prompt{Hash: c[len(c)-1], Blocks: len(c)}
}

func TestWhatAnotherRouterSentIsKnownFromReports(t *testing.T) {
	first := text("conversation", 6400)
	next := first + text("next turn", 640)
	for name, c := range map[string]struct {
		do   func(b *Board)
		want int // tokens of the next turn's prompt that w2 is thought to have
	}{
		"nothing without a report": {func(*Board) {}, 0},
		"the turn before": {func(b *Board) {
			b.Observe(uid, "w2", "i2", Load{Prompts: []Prompt{said(first)}}, epoch)
		}, 1600},
		"not from another instance": {func(b *Board) {
			b.Observe(uid, "w2", "another", Load{Prompts: []Prompt{said(first)}}, epoch)
		}, 0},
		"the longest one of several turns": {func(b *Board) {
			b.Observe(uid, "w2", "i2", Load{Prompts: []Prompt{said(first), said(first[:640]), said(text("x", 640))}}, epoch)
		}, 1600},
		"not when another one has computed it since": {func(b *Board) {
			b.Observe(uid, "w2", "i2", Load{Prompts: []Prompt{said(first)}}, epoch)
			b.Observe(uid, "w1", "i1", Load{Prompts: []Prompt{said(first)}}, epoch)
		}, 0},
		"not when its cache has had to take more since": {func(b *Board) {
			l := Load{KVTotal: count(2000), Prompts: []Prompt{said(first)}}
			b.Observe(uid, "w2", "i2", l, epoch)
			l.Prompts = []Prompt{said(text("other", 6400)), said(text("more", 6400))}
			b.Observe(uid, "w2", "i2", l, epoch)
		}, 0},
		"not when many have come since": {func(b *Board) {
			b.Observe(uid, "w2", "i2", Load{Prompts: []Prompt{said(first)}}, epoch)
			many := make([]Prompt, mostComputed)
			for i := range many {
				many[i] = Prompt{Hash: uint64(i), Blocks: 1}
			}
			b.Observe(uid, "w1", "i1", Load{Prompts: many}, epoch)
		}, 0},
		"not after a restart": {func(b *Board) {
			b.Observe(uid, "w2", "i2", Load{Prompts: []Prompt{said(first)}}, epoch)
			ws := workers(3)
			ws[2].Instance = "another"
			b.Set(of(ws), nodes, epoch)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := board(Options{}, 3)
			c.do(b)
			q := ask("r", "k", next)
			q.Exclude = []Process{{Pod: "w0"}, {Pod: "w1"}}
			if got := place(t, b, q, at(time.Second)).decision.Chosen.Cached; got != c.want {
				t.Errorf("%d tokens, want %d", got, c.want)
			}
			if got := len(b.View(uid).state.computed.order); got > mostComputed {
				t.Errorf("%d prompts are remembered", got)
			}
		})
	}
}

func TestAConversationGoesOnWhereAnotherRouterLeftIt(t *testing.T) {
	first := text("conversation", 6400)
	owner := walk(3, "k")[0]
	for _, pod := range walk(3, "k") {
		b := board(Options{}, 3)
		b.Observe(uid, pod, "i"+pod[1:], Load{Prompts: []Prompt{said(first)}}, epoch)
		if got := place(t, b, ask("r", "k", first+text("next turn", 640)), epoch).Worker().Pod; got != pod {
			t.Errorf("it was on %s and goes to %s, its owner is %s", pod, got, owner)
		}
	}
}
