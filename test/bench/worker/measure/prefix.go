package measure

import (
	"context"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// shared is the length of a common prefix in tokens.
const shared = 512

// prefix has 16 clients come at once with a prefix that nobody has seen before, 16 tokens of their own, and a wish for 32.
func (r *Rig) prefix(ctx context.Context) ([]pairs.Row, error) {
	s := series{}
	rows := func() []pairs.Row {
		const name = "16 clients with a new prefix of 512 tokens: "
		return []pairs.Row{
			pairs.AtLeast(name+"tokens/s, worker / llama-server", pairs.Over(s["worker"], s["llama-server"]), "×", 1.2),
			pairs.AtMost(name+"first token, worker / llama-server", pairs.Over(s["worker first"], s["llama-server first"]), "×", 0.5),
			pairs.Plain(name+"worker", s["worker"], "tokens/s"),
			pairs.Plain(name+"llama-server", s["llama-server"], "tokens/s"),
			pairs.Plain(name+"worker, first token", s["worker first"], "s"),
			pairs.Plain(name+"llama-server, first token", s["llama-server first"], "s"),
		}
	}
	one := func(ctx context.Context, i int) error {
		requests := r.corpus.Requests(16, r.corpus.Prompt(nil, shared), prompt, steps)
		ask := func(name string, e peers.Engine) func() error {
			return func() error {
				answers, err := peers.Crowd(ctx, e, requests)
				s.add(name, timeline.Throughput(answers))
				s.add(name+" first", pairs.Series(timeline.Firsts(answers)).Median())
				return err
			}
		}
		return alternate(i, ask("worker", r.worker), ask("llama-server", r.llama))
	}
	return r.turns(ctx, one, rows)
}

// second asks with a new prefix, then two at once with that prefix and tokens of their own: how long the later one of both
// waits for its first token, as a part of what the first one waited.
func (r *Rig) second(ctx context.Context) ([]pairs.Row, error) {
	s := series{}
	rows := func() []pairs.Row {
		const name = "two at once with a cached prefix of 512 tokens: "
		return []pairs.Row{
			pairs.AtMost(name+"the later first token / cold", pairs.Over(s["worker later"], s["worker cold"]), "×", 0.2),
			pairs.Plain(name+"llama-server's / its cold", pairs.Over(s["llama-server later"], s["llama-server cold"]), "×"),
			pairs.Plain(name+"cold", s["worker cold"], "s"),
			pairs.Plain(name+"the later", s["worker later"], "s"),
			pairs.Plain(name+"llama-server, cold", s["llama-server cold"], "s"),
			pairs.Plain(name+"llama-server, the later", s["llama-server later"], "s"),
		}
	}
	one := func(ctx context.Context, i int) error {
		requests := r.corpus.Requests(3, r.corpus.Prompt(nil, shared), 8, 4)
		ask := func(name string, e peers.Engine) func() error {
			return func() error {
				cold, err := e.Ask(ctx, requests[0])
				if err != nil {
					return err
				}
				both, err := peers.Crowd(ctx, e, requests[1:])
				s.add(name+" cold", cold.First().Seconds())
				s.add(name+" later", max(both[0].First(), both[1].First()).Seconds())
				return err
			}
		}
		if i%beside != 0 {
			return ask("worker", r.worker)()
		}
		return alternate(i, ask("worker", r.worker), ask("llama-server", r.llama))
	}
	return r.turns(ctx, one, rows)
}
