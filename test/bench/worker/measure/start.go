package measure

import (
	"context"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
)

// start measures how long it takes from the start of a process until it has given a first token. The model's file is in
// memory already.
func (r *Rig) start(ctx context.Context) ([]pairs.Row, error) {
	s := series{}
	rows := func() []pairs.Row {
		const name = "cold start, process to first token: "
		return []pairs.Row{
			pairs.Plain(name+"worker", s["worker"], "s"),
			pairs.Plain(name+"llama-server", s["llama-server"], "s"),
		}
	}
	type started interface {
		peers.Engine
		Stop()
	}
	one := func(ctx context.Context, i int) error {
		q := r.one(nil, 8, 1)
		first := func(name string, start func() (started, error)) func() error {
			return func() error {
				began := time.Now()
				e, err := start()
				if err != nil {
					return err
				}
				defer e.Stop()
				a, err := e.Ask(ctx, q)
				if err != nil {
					return err
				}
				s.add(name, a.Arrivals[0].At.Sub(began).Seconds())
				return nil
			}
		}
		return alternate(i,
			first("worker", func() (started, error) { return peers.StartWorker(ctx, r.fleet, r.Programs) }),
			first("llama-server", func() (started, error) { return peers.StartLlamaServer(ctx, r.Programs) }))
	}
	return r.turns(ctx, one, rows)
}
