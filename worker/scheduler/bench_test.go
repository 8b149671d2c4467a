package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/cputime"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// constant is a sampler without cost.
type constant struct{}

func (constant) Next([]float32) (sampling.Choice, error) { return sampling.Choice{Token: 'x'}, nil }
func (constant) Accept(engine.Token)                     {}

// weightless is a device without cost: its logits say nothing. It counts steps and holds up to most of them.
type weightless struct {
	*sim.Device
	rows  [][]float32
	steps int
	most  int
	done  chan struct{}
}

func (w *weightless) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	if w.steps++; w.steps == w.most {
		close(w.done)
	}
	if w.steps >= w.most {
		<-ctx.Done()
		return nil, engine.ErrAborted
	}
	for len(w.rows) < len(b.Items) {
		w.rows = append(w.rows, nil)
	}
	return &engine.Result{Logits: w.rows[:len(b.Items)]}, nil
}

func report(b *testing.B, used time.Duration) {
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}

// BenchmarkStep measures what the scheduler itself costs in each step of so many streams: forming the step, booking it,
// making text, handing it to the readers, whose reading counts too. The forward pass and the choice of tokens cost nothing.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			loaded := sim.New(sim.Options{ContextTokens: 1 << 30, Sequences: n, KVTokens: 1024, Clock: clock.RealClock{}})
			w := &weightless{Device: loaded.Executor.(*sim.Device), most: 100 + b.N, done: make(chan struct{})}
			loaded.Executor = &roomy{w}
			e, err := New(loaded, Options{MaxSequences: n, MaxWaiting: n, StepTokens: 512, Clock: clock.RealClock{}, Log: logr.Discard(),
				Sampler: func(engine.Sampling, sampling.Options) Sampler { return constant{} }})
			if err != nil {
				b.Fatal(err)
			}
			var readers sync.WaitGroup
			for range n {
				s, err := e.Generate(context.Background(), &engine.Request{Prompt: engine.Prompt{Text: "some prompt"}})
				if err != nil {
					b.Fatal(err)
				}
				readers.Go(func() {
					for {
						if _, err := s.Next(); err != nil {
							return
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cputime.Used()
			<-w.done
			report(b, cputime.Used()-before)
			b.StopTimer()
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
			readers.Wait()
		})
	}
}

// roomy says that the device has cells without end.
type roomy struct{ *weightless }

func (r *roomy) Caps() engine.Caps {
	c := r.Device.Caps()
	c.KVTokens, c.MaxStepTokens = 1<<24, 4096
	return c
}

// BenchmarkBooks measures the pure part of that.
func BenchmarkBooks(b *testing.B) {
	const n = 16
	s := newState(limits{sequences: n, waiting: n, stepTokens: 512, context: 1 << 30, cache: kvcache.Options{Blocks: 1 << 20, Sequences: n}}, sim.Vocabulary{})
	for i := range n {
		s.put(i, 500, 1<<30, 0)
	}
	for range 100 {
		s.stepOnce()
	}
	b.ReportAllocs()
	before := cputime.Used()
	for b.Loop() {
		s.stepOnce()
	}
	report(b, cputime.Used()-before)
}

// BenchmarkChoose measures the choice of a step's tokens over a vocabulary of 152 064, as large models have it.
func BenchmarkChoose(b *testing.B) {
	row := make([]float32, 152064)
	for i := range row {
		row[i] = rand.Float32() * 10
	}
	for _, n := range []int{1, 16, 64} {
		for name, s := range map[string]engine.Sampling{"greedy": {}, "top_p": {Temperature: 0.8, TopP: 0.95}} {
			b.Run(fmt.Sprintf("streams=%d/%s", n, name), func(b *testing.B) {
				draws, rows := make([]draw, n), make([][]float32, n)
				for i := range draws {
					rows[i] = append([]float32(nil), row...)
					draws[i] = draw{run: &run{sampler: sampling.New(s, sampling.Options{})}, item: i}
				}
				before := cputime.Used()
				for b.Loop() {
					choose(draws, rows)
				}
				report(b, cputime.Used()-before)
			})
		}
	}
}
