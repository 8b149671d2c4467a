package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/gpu"
)

// breaking are GPUs that break when a test says so: no test can break a real one.
type breaking struct{ broken atomic.Bool }

func (b *breaking) Snapshot() gpu.Snapshot { return gpu.Snapshot{} }
func (b *breaking) Close() error           { return nil }

func (b *breaking) Health(context.Context) error {
	if b.broken.Load() {
		return &gpu.UnhealthyError{Reasons: []string{"GPU 0 fell off the bus (XID 79)"}}
	}
	return nil
}

func TestABrokenGPUEndsTheWorkerThatComputesOnIt(t *testing.T) {
	p := start(t, device(sim.Options{}), func(o *Options) { o.GPU.Layers = -1 })
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	g := &breaking{}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.a.watchGPUs(context.Background(), g)
	}()
	g.broken.Store(true)
	var sick *gpu.UnhealthyError
	if err := p.end(); !errors.As(err, &sick) {
		t.Errorf("ended with %v", err)
	}
	<-watched
}

func TestAWorkerThatComputesOnTheCPUDoesNotMindABrokenGPU(t *testing.T) {
	p := start(t, device(sim.Options{}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	g := &breaking{}
	g.broken.Store(true)
	p.a.watchGPUs(context.Background(), g) // returns at once
	if p.stage() != workerv1.Stage_STAGE_LOADED {
		t.Errorf("the worker is at stage %v", p.stage())
	}
}
