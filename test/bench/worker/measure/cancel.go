package measure

import (
	"context"
	"errors"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
)

// long is the length of a prompt that is cancelled.
const long = 1500

// cancel asks for something short while nothing runs, and again right after a prompt of 1,500 tokens was cancelled in the
// first quarter of its computation.
func (r *Rig) cancel(ctx context.Context) ([]pairs.Row, error) {
	engines := []struct {
		name string
		peers.Engine
		quarter time.Duration
	}{{"worker", r.worker, 0}, {"llama-server", r.llama, 0}}
	for i, e := range engines {
		whole, err := e.Ask(ctx, r.one(nil, long, 1))
		if err != nil {
			return nil, err
		}
		engines[i].quarter = whole.First() / 4
	}
	s := series{}
	rows := func() []pairs.Row {
		const name = "first token after the cancel of a prompt of 1500 tokens: "
		return []pairs.Row{
			pairs.AtMost(name+"worker / its own when idle", pairs.Over(s["worker after"], s["worker idle"]), "×", 1.3),
			pairs.Plain(name+"llama-server / its own when idle", pairs.Over(s["llama-server after"], s["llama-server idle"]), "×"),
			pairs.Plain(name+"worker, idle", s["worker idle"], "s"),
			pairs.Plain(name+"worker", s["worker after"], "s"),
			pairs.Plain(name+"llama-server, idle", s["llama-server idle"], "s"),
			pairs.Plain(name+"llama-server", s["llama-server after"], "s"),
		}
	}
	one := func(ctx context.Context, i int) error {
		short, again, cancelled := r.one(nil, prompt, 2), r.one(nil, prompt, 2), r.one(nil, long, 1)
		ask := func(j int) func() error {
			e := engines[j]
			return func() error {
				idle, err := e.Ask(ctx, short)
				if err != nil {
					return err
				}
				if err := within(ctx, e, cancelled, e.quarter); err != nil {
					return err
				}
				after, err := e.Ask(ctx, again)
				s.add(e.name+" idle", idle.First().Seconds())
				s.add(e.name+" after", after.First().Seconds())
				return err
			}
		}
		if i%beside != 0 {
			return ask(0)()
		}
		return alternate(i, ask(0), ask(1))
	}
	return r.turns(ctx, one, rows)
}

// within asks and cancels after a while, in which no token may come.
func within(ctx context.Context, e peers.Engine, q peers.Request, after time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, after)
	defer stop()
	switch answer, err := e.Ask(ctx, q); {
	case len(answer.Arrivals) > 0:
		return errors.New("the prompt was computed before it was cancelled")
	case ctx.Err() == nil:
		return err
	}
	return nil
}
