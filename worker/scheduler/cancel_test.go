package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// slow is a device on which a token takes a second of the test's clock, and whose steps can be aborted.
func slow(text string) sim.Options {
	return sim.Options{Text: text, ContextTokens: 256, Sequences: 4, KVTokens: 512, AbortMidStep: true,
		PerPromptToken: time.Second, PerStream: time.Second}
}

// tick lets the step under way end.
func (r *rig) tick(t *testing.T) {
	t.Helper()
	eventually(t, "a step is under way", r.clock.HasWaiters)
	r.clock.Step(time.Hour)
}

func TestACancelInsideAPrefillEndsTheStepAndHarmsNobody(t *testing.T) {
	const answer = "the quick brown fox jumps over the lazy dog"
	r := newRig(t, &gate{}, slow(answer), func(o *Options) { o.StepTokens = 64 })
	stream, err := r.Generate(context.Background(), ask("a", 60))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	r.tick(t) // a's prompt
	for i := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		long := ask(strings.Repeat("b", 150), 10)
		b, err := r.Generate(ctx, long)
		if err != nil {
			t.Fatal(err)
		}
		r.tick(t) // the step that may have been formed before it came
		eventually(t, "b's prompt is in a step", func() bool {
			s := r.Engine.(*scheduler)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.current != nil && r.clock.HasWaiters()
		})
		before := r.clock.Now()
		cancel()
		eventually(t, "b has left", func() bool { st := r.Stats(); return st.Running == 1 && *st.KVBlocksUsed < 8 })
		if !r.clock.Now().Equal(before) {
			t.Fatalf("cancel %d took the time of a step", i)
		}
		if _, _, err := read(b); !errors.Is(err, context.Canceled) {
			t.Fatalf("b ended with %v", err)
		}
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				if r.clock.HasWaiters() {
					r.clock.Step(time.Hour)
				}
			}
		}
	})
	if got, _, err := read(stream); got != answer || err != nil {
		t.Errorf("the neighbour got %q, %v", got, err)
	}
	close(done)
	group.Wait()
}

func TestADeadlineEndsARequestAsACancelDoes(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, small("x"), nil)
	g.close()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(time.Millisecond))
	defer cancel()
	s, err := r.Generate(ctx, ask("a", 60))
	if err == nil { // else the deadline passed before the request was queued
		defer s.Close()
		_, _, err = read(s)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ended with %v", err)
	}
	if st := r.Stats(); st.Running != 0 && *st.KVBlocksUsed > 1 || st.Waiting != 0 {
		t.Fatalf("after the deadline: %+v", st)
	}
}

// book notes after how many steps each cancelled request must have given back what it held.
type book struct {
	mu    sync.Mutex // guards the rest
	steps int        // that have begun
	due   map[*request]int
	freed int
	late  []string
}

// begin is called when a step begins, by the scheduler's goroutine.
func (b *book) begin(s *scheduler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps++
	for r, due := range b.due {
		held := false
		for _, run := range r.runs {
			held = held || run.table != nil
		}
		switch {
		case !held:
			b.freed++
			delete(b.due, r)
		case b.steps >= due:
			b.late = append(b.late, r.id)
			delete(b.due, r)
		}
	}
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freed + len(b.late)
}

// find returns the request with an id, if it is still inside.
func (s *scheduler) find(id string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range [][]*run{s.state.active, s.state.queue} {
		for _, r := range list {
			if r.request.id == id {
				return r.request
			}
		}
	}
	return nil
}

func TestOfAThousandCancelsEachFreesItsBlocksBeforeTheSecondStep(t *testing.T) {
	const cancels = 1000
	b := &book{due: map[*request]int{}}
	var s *scheduler
	ready := make(chan struct{})
	g := &gate{wrap: func(d *sim.Device) engine.Executor {
		return &watched{Device: d, begin: func() {
			<-ready
			b.begin(s)
		}}
	}}
	device := random()
	device.KVTokens = 256 // too few, so that some are preempted
	r := newRig(t, g, device, nil)
	s = r.Engine.(*scheduler)
	close(ready)

	var group sync.WaitGroup
	for i := range 8 {
		dice := rand.New(rand.NewPCG(uint64(i), 1))
		group.Go(func() {
			for n := 0; b.count() < cancels; n++ {
				cancelOne(t, r, s, b, fmt.Sprintf("%d-%d", i, n), dice)
			}
		})
	}
	group.Wait()
	preemptions := *r.Stats().Preemptions
	b.mu.Lock() // some steps may still run
	t.Logf("%d of %d cancelled requests had no blocks before the second step, %d steps, %d preemptions", b.freed, b.freed+len(b.late), b.steps, preemptions)
	if len(b.late) > 0 {
		t.Errorf("still held blocks at the second step: %v", b.late)
	}
	b.mu.Unlock()
	eventually(t, "all is free", func() bool { st := r.Stats(); return *st.KVBlocksUsed == 0 && st.Running == 0 && st.Waiting == 0 })
}

// watched tells of each step before it begins.
type watched struct {
	*sim.Device
	begin func()
}

func (w *watched) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	w.begin()
	runtime.Gosched() // for the callers: steps cost nothing here
	return w.Device.Step(ctx, b)
}

// cancelOne starts a request, reads some of it, and cancels it if it still runs.
func cancelOne(t *testing.T, r *rig, s *scheduler, b *book, id string, dice *rand.Rand) {
	q := &engine.Request{ID: id, Prompt: engine.Prompt{Text: strings.Repeat(string(rune('a'+dice.IntN(3))), 1+dice.IntN(90))},
		MaxTokens: 100, MinTokens: 90, Choices: 1 + dice.IntN(2)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := r.Generate(ctx, q)
	if err != nil {
		t.Error(err)
		return
	}
	defer stream.Close()
	for range dice.IntN(20) {
		if _, err := stream.Next(); err != nil {
			return
		}
	}
	found := s.find(id)
	if found == nil {
		return
	}
	if dice.IntN(2) == 0 {
		cancel()
		_, _, err := read(stream) // until the cancel has arrived
		if !errors.Is(err, context.Canceled) {
			return
		}
	} else {
		_ = stream.Close()
		if _, _, err := read(stream); !errors.Is(err, engine.ErrClosed) {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due[found] = b.steps + 2
}
