// Package worker does to workers, to their engines and to the way between them and the routers what goes wrong with them: they
// die, stop, are cut off, slow, flap, lie or send what is no answer. Each fault is a trial; what it measures is in its figures.
package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// Trials are all faults of this package, in the order of their ids.
func Trials() []trial.Trial {
	var all []trial.Trial
	for _, of := range []func() []trial.Trial{deathBeforeTheFirstByte, deathWithinStreams, frozenWorker, partition, halfPartition, slowWorker, flapping, badEngines, notLoaded, anotherInstance,
		anotherModel, poisonous, staleConnections, split, garbage, drained} {
		all = append(all, of()...)
	}
	return all
}

// words is a request for a scripted answer.
func words(n int, stream bool) client.Request {
	return client.Request{Model: rig.ModelName, Words: n, Stream: stream}
}

// mixed is a load half of which is streamed.
func mixed(n int) client.Make {
	return func(i int) client.Request { return words(n, i%2 == 0) }
}

// good reports whether an answer is whole.
func good(c *history.Client) bool { return c.Outcome() == history.Completed }

// failures counts the answers that are not whole.
func failures(all []history.Client) (n int) {
	for i := range all {
		if !good(&all[i]) {
			n++
		}
	}
	return n
}

// busy waits until a request is at work at the engine of one of the workers, and returns that one.
func busy(ctx context.Context, workers []*rig.Worker, id string) (found *rig.Worker, err error) {
	err = rig.Until(ctx, 2*time.Millisecond, func(ctx context.Context) error {
		for _, w := range workers {
			s, err := w.Engine.State(ctx)
			if err != nil {
				return err
			}
			for _, r := range s.Running {
				if r == id {
					found = w
					return nil
				}
			}
		}
		return errNowhere
	})
	return found, err
}

var errNowhere = errors.New("the request has reached no engine")

// beside runs a load beside do, and returns what its clients saw.
func beside(ctx context.Context, load func(ctx context.Context, stop <-chan struct{}) []history.Client, do func() error) ([]history.Client, error) {
	stop := make(chan struct{})
	var all []history.Client
	var group sync.WaitGroup
	group.Go(func() { all = load(ctx, stop) })
	err := do()
	close(stop)
	group.Wait()
	return all, err
}

// back starts a worker anew and waits until it is in all rings.
func back(ctx context.Context, r *rig.Rig, w *rig.Worker) error {
	if err := w.Restart(ctx); err != nil {
		return err
	}
	if err := w.Loaded(ctx); err != nil {
		return err
	}
	return newly(ctx, r, w)
}

// newly waits until a worker's present instance is in all rings.
func newly(ctx context.Context, r *rig.Rig, w *rig.Worker) error {
	id, err := w.Instance(ctx)
	if err != nil {
		return err
	}
	for _, x := range r.Routers {
		err := rig.Until(ctx, 10*time.Millisecond, func(ctx context.Context) error {
			s, err := x.Worker(ctx, w.Pod)
			if err == nil && (!s.GetInRing() || s.GetReport().GetInstanceId() != id) {
				err = fmt.Errorf("%s is not in the ring of %s again", w.Pod, x.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
