package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// TestWhateverHappensTheBooksAreRightAndTheTextToo drives the pure step with random requests (shared prefixes, salts,
// adapters, priorities, choices, stop strings, outputs that were begun elsewhere), cancels, aborted and refused steps, on a
// device with too few cells whose logits tell what its cells hold. It holds the scheduler to: every choice ends exactly once,
// with the text that it has when it runs alone, and a cancelled one with a beginning of it; a batch stays within its budget,
// has one adapter, has the next token of every stream of that adapter, and is what the device expects; the first in the order
// never gives way; what a cancelled request held is free before the next step.
func TestWhateverHappensTheBooksAreRightAndTheTextToo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits{
			sequences: rapid.IntRange(1, 5).Draw(t, "sequences"),
			waiting:   rapid.IntRange(1, 8).Draw(t, "waiting"),
			age:       rapid.IntRange(0, 4).Draw(t, "age"),
			context:   rapid.IntRange(2, 200).Draw(t, "context"),
		}
		l.cache = kvcache.Options{
			Blocks:    rapid.IntRange(1, 20).Draw(t, "blocks"),
			Sequences: l.sequences + rapid.IntRange(0, 3).Draw(t, "ids"),
			MaxIdle:   rapid.IntRange(0, 4).Draw(t, "idle"),
		}
		l.stepTokens = l.sequences + rapid.IntRange(1, 40).Draw(t, "budget")
		m := newModel(l)
		for range rapid.IntRange(1, 150).Draw(t, "events") {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2:
				m.arrive(t)
			case 3:
				m.cancel(t)
			default:
				m.step(t)
			}
			m.check(t)
		}
		for i := 0; m.s.size() > 0; i++ {
			if i > 20000 {
				t.Fatalf("%d runs never end", m.s.size())
			}
			m.step(t)
			m.check(t)
		}
		m.step(t)
		if kv := m.s.cache.Stats(); kv.Active != 0 || kv.Tables != 0 {
			t.Fatalf("left over: %+v", kv)
		}
		for _, r := range m.all {
			m.compare(t, r)
		}
	})
}

// model is the device, the requests that were ever accepted, and what came of each choice.
type model struct {
	l      limits
	s      *state
	device *sim.Device
	fail   error // of the next step
	all    []*request
	heard  map[*run]*heard
	there  map[*run]string // what was said where an output began, if elsewhere
}

type heard struct {
	text   string
	tokens int
	finish engine.FinishReason
	err    bool // ended by a cancel
}

func newModel(l limits) *model {
	m := &model{l: l, heard: map[*run]*heard{}, there: map[*run]string{}}
	m.device = randomDevice(l, func(*engine.Batch) error { return m.fail })
	m.s = newState(l, sim.Vocabulary{})
	for i, name := range []string{"one", "two"} {
		m.s.adapters[name] = &adapter{name: name, key: fmt.Sprint(i)}
	}
	return m
}

// randomDevice is one whose logits tell what its cells hold. It has the adapters one and two.
func randomDevice(l limits, before func(*engine.Batch) error) *sim.Device {
	d := sim.New(sim.Options{Random: true, Adapters: true, ContextTokens: l.context, Sequences: l.cache.Sequences, Before: before,
		KVTokens: l.cache.Blocks * kvcache.BlockTokens, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}).Executor.(*sim.Device)
	for _, name := range []string{"one", "two"} {
		if err := d.LoadAdapter(engine.Adapter{Name: name, Path: name}); err != nil {
			panic(err)
		}
	}
	return d
}

func (m *model) arrive(t *rapid.T) {
	prompt := slices.Concat( // one of few beginnings, in any length, and an end
		slices.Repeat([]engine.Token{engine.Token(rapid.IntRange('A', 'B').Draw(t, "prefix"))}, rapid.IntRange(0, 50).Draw(t, "shared")),
		slices.Repeat([]engine.Token{engine.Token(rapid.IntRange('a', 'c').Draw(t, "suffix"))}, rapid.IntRange(0, 30).Draw(t, "own")),
	)
	q := &engine.Request{
		MaxTokens: rapid.IntRange(0, 60).Draw(t, "max"), MinTokens: rapid.SampledFrom([]int{0, 0, 0, 5}).Draw(t, "min"),
		Choices:  rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "n"),
		Sampling: engine.Sampling{Temperature: rapid.SampledFrom([]float64{0, 1}).Draw(t, "temperature"), Seed: rapid.Uint64Range(0, 3).Draw(t, "seed")},
	}
	g, err := m.l.judge(len(prompt), "prompt", q)
	if err != nil {
		return
	}
	r := &request{
		id: fmt.Sprint(len(m.all)), grant: g, priority: rapid.IntRange(-2, 2).Draw(t, "priority"),
		salt:    rapid.SampledFrom([]string{"", "", "tenant"}).Draw(t, "salt"),
		adapter: m.s.adapters[rapid.SampledFrom([]string{"", "", "one", "two"}).Draw(t, "adapter")],
	}
	for i := range q.Choices {
		c := &run{request: r, choice: i, sampler: m.sampler(q.Sampling, g, i), voice: voice{choice: i, text: text{stops: []string{"ab", "bcd"}}}}
		r.runs = append(r.runs, c)
	}
	r.runs[0].tokens = prompt
	if q.Choices == 1 && rapid.IntRange(0, 2).Draw(t, "begun elsewhere") == 0 && m.begin(t, r) {
		return
	}
	if m.s.arrive(r) == nil {
		m.all = append(m.all, r)
		for _, c := range r.runs {
			m.heard[c] = &heard{}
		}
	}
}

// begin gives r the first of what it says when it runs alone. It returns whether that is all.
func (m *model) begin(t *rapid.T, r *request) bool {
	c := r.runs[0]
	_, tokens, _ := m.alone(c)
	r.made = rapid.IntRange(0, len(tokens)).Draw(t, "made")
	why, said, err := c.replay(tokens[:r.made], sim.Vocabulary{})
	if err != nil || (why != "") != (r.made == len(tokens)) {
		t.Fatalf("%d of %d tokens end it by %q, %v", r.made, len(tokens), why, err)
	}
	m.there[c] = said.Text
	return why != ""
}

// sampler is that of a choice, which may not end too early.
func (m *model) sampler(s engine.Sampling, g grant, choice int) *counting {
	c := &counting{}
	s.Seed += uint64(choice)
	c.Sampler = sampling.New(s, sampling.Options{Forbid: func(t engine.Token) bool { return c.made < g.least && t == sim.End }})
	c.again = func() *counting { return m.sampler(s, g, 0) }
	return c
}

// counting knows how many tokens it has made, and how to begin again.
type counting struct {
	Sampler
	made  int
	again func() *counting
}

func (c *counting) Accept(t engine.Token) {
	c.made++
	c.Sampler.Accept(t)
}

func (m *model) cancel(t *rapid.T) {
	if len(m.all) == 0 {
		return
	}
	if r := m.all[rapid.IntRange(0, len(m.all)-1).Draw(t, "which")]; !r.done() {
		for _, c := range r.runs {
			if c.phase != ended {
				m.heard[c].err = true
			}
		}
		m.s.end(r)
	}
}

func (m *model) step(t *rapid.T) {
	var first *run
	if len(m.s.active) > 0 {
		first = m.s.active[0]
	}
	p := m.s.next()
	if first != nil && first.phase != running {
		t.Fatalf("run %s gave way though it is the first", first.name())
	}
	m.checkPlan(t, p)
	m.fail = nil
	what := rapid.IntRange(0, 14).Draw(t, "what happens")
	if what == 0 {
		m.fail = engine.ErrNoKV
	}
	result, err := m.device.Step(context.Background(), &p.batch)
	if err != nil && (m.fail == nil || !errors.Is(err, m.fail)) {
		t.Fatalf("the device refuses the step: %v", err)
	}
	if rapid.IntRange(0, 4).Draw(t, "cancel while it runs") == 0 {
		m.cancel(t)
	}
	switch what {
	case 0:
		m.s.refused(p)
		m.s.frugal = false // for the sake of the test
	case 1:
		m.s.aborted(p) // cells were written, as an aborted step may do
	default:
		choose(p.draws, result.Logits)
		for _, e := range m.s.apply(p, time.Time{}, &StepRecord{}) {
			m.hear(t, e)
		}
	}
}

func (m *model) hear(t *rapid.T, e event) {
	r := e.request.runs[e.chunk.Choice]
	h := m.heard[r]
	if e.err != nil || h.finish != "" || h.err {
		t.Fatalf("%s has output after its end, or %v", r.name(), e.err)
	}
	h.text += e.chunk.Text
	h.tokens += len(e.chunk.Tokens)
	h.finish = e.chunk.Finish
	if h.finish != "" && e.chunk.Usage.Completion != r.generated {
		t.Fatalf("%s counts %d tokens of %d", r.name(), e.chunk.Usage.Completion, r.generated)
	}
}

// checkPlan looks at a batch before it runs.
func (m *model) checkPlan(t *rapid.T, p *plan) {
	tokens, has := 0, map[*run]bool{}
	for i, r := range p.runs {
		tokens += len(p.batch.Items[i].Tokens)
		has[r] = true
		if r.request.adapter.name != p.batch.Adapter {
			t.Fatalf("%s is in a batch of adapter %q", r.name(), p.batch.Adapter)
		}
	}
	if tokens > m.l.stepTokens || tokens != p.prefill+p.decode {
		t.Fatalf("a step of %d tokens, %d+%d", tokens, p.prefill, p.decode)
	}
	if len(m.s.active) > 0 && tokens == 0 {
		t.Fatalf("%d run, yet nothing moves", len(m.s.active))
	}
	for _, r := range m.s.active {
		if r.decodes() && r.request.adapter.name == p.batch.Adapter && !has[r] {
			t.Fatalf("stream %s has no token in the step", r.name())
		}
	}
}

// check looks at the books between steps.
func (m *model) check(t *rapid.T) {
	kv := m.s.cache.Stats()
	if kv.Active+kv.Cached+kv.Free != m.l.cache.Blocks || kv.Tables != len(m.s.active) {
		t.Fatalf("%d sequences run: %+v", len(m.s.active), kv)
	}
	if len(m.s.active) > m.l.sequences || !slices.IsSortedFunc(m.s.active, order) || !slices.IsSortedFunc(m.s.queue, order) {
		t.Fatalf("%d run, or something is out of order", len(m.s.active))
	}
	for _, r := range m.s.active {
		if r.busy != 0 || r.pending() < 1 || r.table.Blocks()*kvcache.BlockTokens < r.table.Len() {
			t.Fatalf("%s: %d tokens pending, %d in %d blocks", r.name(), r.pending(), r.table.Len(), r.table.Blocks())
		}
	}
	inside := map[*adapter]int{}
	for _, r := range m.all {
		if !r.done() {
			inside[r.adapter]++
		}
	}
	for name, a := range m.s.adapters {
		if a.inside != inside[a] {
			t.Fatalf("adapter %q has %d requests, %d are counted", name, inside[a], a.inside)
		}
	}
}

func order(a, b *run) int {
	if before(a, b) {
		return -1
	}
	return 1
}

// compare holds each choice of r to what it says when it runs alone.
func (m *model) compare(t *rapid.T, r *request) {
	for _, c := range r.runs {
		h := m.heard[c]
		want, all, finish := m.alone(c)
		tokens := len(all)
		h.text = m.there[c] + h.text
		switch {
		case h.err && !strings.HasPrefix(want, h.text):
			t.Fatalf("%s said %q before its cancel, alone it says %q", c.name(), h.text, want)
		case !h.err && (h.text != want || h.finish != finish || c.generated != tokens):
			t.Fatalf("%s said %q (%s, %d tokens), alone it says %q (%s, %d)", c.name(), h.text, h.finish, c.generated, want, finish, tokens)
		}
	}
}

// alone is what a choice says on a device of its own, by the obvious loop.
func (m *model) alone(c *run) (text string, tokens []engine.Token, why engine.FinishReason) {
	l := m.l
	l.cache.Blocks = 40
	d, s, g := randomDevice(l, nil), c.sampler.(*counting).again(), c.request.grant
	prompt := c.request.runs[0].tokens
	feed := prompt[:len(prompt)-c.request.runs[0].generated]
	pos := 0
	for made := 1; ; made++ {
		out, err := d.Step(context.Background(), &engine.Batch{Adapter: c.request.adapter.name, Items: []engine.Item{{Pos: pos, Tokens: feed, Logits: true}}})
		if err != nil {
			panic(err)
		}
		pos += len(feed)
		next, err := s.Next(out.Logits[0])
		if err != nil {
			panic(err)
		}
		s.Accept(next.Token)
		tokens = append(tokens, next.Token)
		if next.Token == sim.End {
			return text, tokens, engine.FinishStop
		}
		text += string(sim.Vocabulary{}.Piece(next.Token))
		if made >= g.least {
			if cut, stopped := stoppedAt(text, c.voice.stops); stopped {
				return cut, tokens, engine.FinishStop
			}
		}
		if made == g.most {
			return text, tokens, engine.FinishLength
		}
		feed = []engine.Token{next.Token}
	}
}

// stoppedAt reports whether one of stops ends with the last byte of s, and what is before the one that begins first.
func stoppedAt(s string, stops []string) (string, bool) {
	best := -1
	for _, stop := range stops {
		if at := len(s) - len(stop); strings.HasSuffix(s, stop) && (best < 0 || at < best) {
			best = at
		}
	}
	if best < 0 {
		return s, false
	}
	return s[:best], true
}
