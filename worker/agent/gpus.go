package agent

import (
	"context"
	"errors"

	"github.com/ringfleet/ringfleet/worker/gpu"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// gpus is what the agent needs of package gpu.
type gpus interface {
	Snapshot() gpu.Snapshot
	Health(context.Context) error
	Close() error
}

// watchGPUs makes the GPUs' figures a part of the metrics, and their health a part of the worker's where the model in this
// process is on them. It returns when ctx ends.
func (a *agent) watchGPUs(ctx context.Context, g gpus) {
	a.set.Add(metrics.NewGPUs(g.Snapshot))
	for _, d := range g.Snapshot().Devices {
		a.log.Info("A GPU is visible", "index", d.Index, "name", d.Name, "uuid", d.UUID, "memoryBytes", d.MemoryBytes, "parts", len(d.Parts))
	}
	if a.o.Driver != llamaCpp || a.o.GPU.Layers == 0 {
		return
	}
	ticker := a.clock.NewTicker(recheck)
	defer ticker.Stop()
	for {
		var sick *gpu.UnhealthyError
		if err := g.Health(ctx); errors.As(err, &sick) {
			// What a broken device computes can't be trusted. The end of the process gives the kubelet and the scheduler their turn.
			a.engineLost(err)
			return
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}
