package scheduler

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// halting is a device whose calls wait until the test lets them go on.
type halting struct {
	*sim.Device
	calls chan string // what has begun
	going chan struct{}
}

func (h *halting) halt(what string) {
	h.calls <- what
	<-h.going
}

func (h *halting) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	h.halt("step")
	return h.Device.Step(ctx, b)
}

func (h *halting) Embed(ctx context.Context, in [][]engine.Token) ([][]float32, error) {
	h.halt("embed")
	return h.Device.Embed(ctx, in)
}

func (h *halting) LoadAdapter(a engine.Adapter) error {
	h.halt("load")
	return h.Device.LoadAdapter(a)
}

func (h *halting) Close() error {
	h.halt("close")
	return h.Device.Close()
}

func TestProgressTellsOfEachCallOfTheDeviceUntilItReturns(t *testing.T) {
	var p Progress
	h := &halting{calls: make(chan string), going: make(chan struct{})}
	device := embedder()
	device.Adapters, device.Step = true, 0
	r := newRig(t, &gate{wrap: func(d *sim.Device) engine.Executor { h.Device = d; return h }}, device, func(o *Options) { o.Progress = &p })
	if w, busy := p.Now(); busy {
		t.Fatalf("an idle scheduler is at %+v", w)
	}
	began := r.clock.Now()
	at := func(what string, steps int) {
		t.Helper()
		if got := <-h.calls; got != what {
			t.Fatalf("the device is at %q, want %q", got, what)
		}
		if w, busy := p.Now(); !busy || !w.Since.Equal(began) || w.Steps != steps {
			t.Errorf("in a call of %s that began at %s: %+v, %t; want %d steps", what, began, w, busy, steps)
		}
		r.clock.Step(time.Minute)
		if w, busy := p.Now(); !busy || !w.Since.Equal(began) {
			t.Errorf("a minute later: %+v, %t", w, busy)
		}
		began = r.clock.Now()
		h.going <- struct{}{}
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.LoadAdapter(context.Background(), engine.Adapter{Name: "one", Path: "1"}); err != nil {
			t.Error(err)
		}
	})
	at("load", 1)
	group.Wait()
	group.Go(func() { all(t, r, ask("a", 1)) })
	at("step", 1)
	at("step", 1) // which drops the cells of what has ended
	group.Wait()
	group.Go(func() {
		if _, err := r.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: strings.Repeat("a", 200)}}}); err != nil {
			t.Error(err)
		}
	})
	at("embed", 7) // 200 tokens, of which a step has 32
	group.Wait()
	eventually(t, "it is idle", func() bool { _, busy := p.Now(); return !busy })
	group.Go(func() { _ = r.Close() })
	at("close", 1)
	group.Wait()
	if w, busy := p.Now(); busy {
		t.Errorf("a closed scheduler is at %+v", w)
	}
}

// passes is a device that computes what it embeds in passes of 64 tokens.
type passes struct {
	*halting
	begin func(tokens int)
}

func (p *passes) EachPass(begin func(tokens int)) { p.begin = begin }

func (p *passes) Embed(ctx context.Context, in [][]engine.Token) ([][]float32, error) {
	for range 2 {
		p.begin(64)
		p.halt("pass")
	}
	return p.Device.Embed(ctx, in)
}

func TestProgressIsRenewedByEachPassOfAnEmbedding(t *testing.T) {
	var p Progress
	h := &halting{calls: make(chan string), going: make(chan struct{})}
	device := embedder()
	device.Step = 0
	r := newRig(t, &gate{wrap: func(d *sim.Device) engine.Executor { h.Device = d; return &passes{halting: h} }}, device, func(o *Options) { o.Progress = &p })
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := r.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: strings.Repeat("a", 128)}}}); err != nil {
			t.Error(err)
		}
	})
	for pass := range 2 {
		<-h.calls
		if w, busy := p.Now(); !busy || !w.Since.Equal(r.clock.Now()) || w.Steps != 2 { // of 32 tokens
			t.Errorf("at %s in pass %d: %+v, %t", r.clock.Now(), pass, w, busy)
		}
		r.clock.Step(time.Minute)
		h.going <- struct{}{}
	}
	group.Wait()
	group.Go(func() { _ = r.Close() })
	<-h.calls
	h.going <- struct{}{}
	group.Wait()
}
