package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// diary keeps what an Observer is told.
type diary struct {
	mu       sync.Mutex // guards the rest
	steps    []StepRecord
	requests []RequestRecord
}

func (d *diary) Stepped(s *StepRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := *s
	kept.FirstTokens, kept.TokenGaps = slices.Clone(s.FirstTokens), slices.Clone(s.TokenGaps)
	d.steps = append(d.steps, kept)
}

func (d *diary) Ended(r *RequestRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, *r)
}

func (d *diary) ended() []RequestRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests)
}

func TestAnObserverIsToldTheTimesAndTokensOfStepsAndRequests(t *testing.T) {
	device := small("abc")
	device.Step, device.PerPromptToken, device.PerStream = 0, time.Millisecond, 5*time.Millisecond
	d := &diary{}
	r := newRig(t, &gate{}, device, func(o *Options) { o.Observer, o.StepTokens = d, 20 })
	long := ask(strings.Repeat("p", 31), 10) // 34 tokens: steps of 20 and 14
	if got := all(t, r, long)[0]; got.Text != "abc" {
		t.Fatalf("got %+v", got)
	}
	eventually(t, "the request is told of", func() bool { return len(d.ended()) == 1 })
	want := RequestRecord{FirstToken: 34 * time.Millisecond, Whole: 49 * time.Millisecond, Prompt: 34, Completion: 4, Finish: engine.FinishStop}
	if got := d.ended()[0]; got != want {
		t.Errorf("request %+v, want %+v", got, want)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, want := range []StepRecord{
		{Took: 20 * time.Millisecond, Prefill: 20, Sequences: 1},
		{Took: 14 * time.Millisecond, Prefill: 14, Sequences: 1, FirstTokens: []time.Duration{34 * time.Millisecond}},
		{Took: 5 * time.Millisecond, Decode: 1, Sequences: 1, TokenGaps: []time.Duration{5 * time.Millisecond}},
	} {
		got := d.steps[i]
		if !slices.Equal(got.FirstTokens, want.FirstTokens) || !slices.Equal(got.TokenGaps, want.TokenGaps) {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
		if got.Took != want.Took || got.Prefill != want.Prefill || got.Decode != want.Decode || got.Sequences != want.Sequences {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
	}
	if len(d.steps) != 5 {
		t.Errorf("%d steps", len(d.steps))
	}
}

func TestARequestThatNeverRanIsToldOfOnceWithItsError(t *testing.T) {
	g, d := &gate{}, &diary{}
	r := newRig(t, g, small("x"), func(o *Options) { o.Observer, o.MaxSequences = d, 1 })
	g.close()
	first, err := r.Generate(context.Background(), ask("a", 5))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	eventually(t, "a runs", func() bool { return r.Stats().Running == 1 })
	second, err := r.Generate(context.Background(), ask("b", 5))
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	_ = second.Close()
	g.open()
	if _, _, err := read(first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are told of", func() bool { return len(d.ended()) == 2 })
	for _, got := range d.ended() {
		if ran := got.Err == nil; !ran && (!errors.Is(got.Err, engine.ErrClosed) || got.Queue != -1 || got.FirstToken != -1) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestChoicesThatEndTogetherAreOneRequest(t *testing.T) {
	d := &diary{}
	r := newRig(t, &gate{}, small("abc"), func(o *Options) { o.Observer = d })
	q := ask("a", 1)
	q.Choices = 3
	all(t, r, q)
	q.MaxTokens = 2
	all(t, r, q)
	eventually(t, "both requests are told of", func() bool { return len(d.ended()) >= 2 })
	if err := r.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := d.ended(); len(got) != 2 || got[0].Completion != 3 || got[1].Completion != 6 {
		t.Fatalf("got %+v", got)
	}
}

func TestTheFirstStepFromIdleGathersAndNoOtherDoes(t *testing.T) {
	r := newRig(t, &gate{}, small("x"), func(o *Options) { o.Gather = 20 * time.Millisecond })
	start := r.clock.Now()
	var streams []engine.Stream
	for range 2 {
		s, err := r.Generate(context.Background(), ask("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
	}
	eventually(t, "the first step waits", r.clock.HasWaiters)
	if st := r.Stats(); st.Running != 0 || st.Waiting != 2 {
		t.Fatalf("while it gathers: %+v", st)
	}
	r.clock.Step(2 * time.Millisecond)
	for _, s := range streams {
		if _, _, err := read(s); err != nil {
			t.Fatal(err)
		}
	}
	if took := r.clock.Since(start); took > 10*time.Millisecond { // the wait, and some steps of 1 ms
		t.Fatalf("took %s", took)
	}
}

func TestStatsCountHitsPreemptionsAndEvictions(t *testing.T) {
	device := random()
	device.KVTokens = 112
	r := newRig(t, &gate{}, device, nil)
	same := &engine.Request{Prompt: engine.Prompt{Text: strings.Repeat("p", 40)}, MaxTokens: 5, IgnoreEOS: true}
	for range 2 {
		all(t, r, same)
	}
	st := r.Stats()
	if *st.CacheQueries != 80 || *st.CacheHits != 32 || *st.KVBlocksUsed != 0 || *st.KVBlocksCached != 2 || *st.KVBlocksTotal != 7 {
		t.Fatalf("after two equal prompts: queries %d, hits %d, used %d, cached %d, total %d",
			*st.CacheQueries, *st.CacheHits, *st.KVBlocksUsed, *st.KVBlocksCached, *st.KVBlocksTotal)
	}
	var group sync.WaitGroup
	r.gate.close()
	for i := range 4 {
		group.Go(func() {
			all(t, r, &engine.Request{Prompt: engine.Prompt{Text: string(rune('a' + i))}, MaxTokens: 100, IgnoreEOS: true})
		})
	}
	eventually(t, "all have come", func() bool { st := r.Stats(); return st.Running+st.Waiting == 4 })
	r.gate.open()
	group.Wait()
	if st := r.Stats(); *st.Preemptions == 0 || *st.Evictions == 0 || *st.KVBlocksUsed != 0 {
		t.Fatalf("after a crowd: %d preemptions, %d evictions, %d blocks used", *st.Preemptions, *st.Evictions, *st.KVBlocksUsed)
	}
}
