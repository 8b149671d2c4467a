package measure

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// The mixed load: 24 requests of 48 tokens, one every tenth of a second. Half of them begin with the same 256 tokens, a
// quarter with the same 128, and each has 32 of its own.
const (
	crowd  = 24
	own    = 32
	output = 48
	apart  = 100 * time.Millisecond
)

// mixed lets the load come as it does, and the same requests one after another, none of which may use another one's cache.
func (r *Rig) mixed(ctx context.Context) ([]pairs.Row, error) {
	s := series{}
	rows := func() []pairs.Row {
		const name = "mixed load of 24 requests: "
		return []pairs.Row{
			pairs.AtLeast(name+"tokens/s, together / one by one without a cache", pairs.Over(s["together"], s["alone"]), "×", 1.9),
			pairs.Plain(name+"together", s["together"], "tokens/s"),
			pairs.Plain(name+"one by one without a cache", s["alone"], "tokens/s"),
			pairs.Plain(name+"prompt tokens from the cache", s["cached"], "%"),
		}
	}
	one := func(ctx context.Context, i int) error {
		requests := r.mix()
		return alternate(i, func() error {
			answers, err := r.together(ctx, requests)
			s.add("together", timeline.Throughput(answers))
			s.add("cached", cached(answers))
			return err
		}, func() error {
			var answers []timeline.Answer
			for j, q := range requests {
				q.Salt = strconv.Itoa(i) + "." + strconv.Itoa(j)
				a, err := r.worker.Ask(ctx, q)
				if err != nil {
					return err
				}
				answers = append(answers, a)
			}
			s.add("alone", timeline.Throughput(answers))
			return nil
		})
	}
	return r.turns(ctx, one, rows)
}

// mix is a load with prefixes that nobody has seen before.
func (r *Rig) mix() []peers.Request {
	long, short := r.corpus.Prompt(nil, 256), r.corpus.Prompt(nil, 128)
	var out []peers.Request
	for i := range crowd {
		prefix := [][]uint32{long, short, long, nil}[i%4]
		out = append(out, r.one(prefix, own, output))
	}
	return out
}

// together sends the load.
func (r *Rig) together(ctx context.Context, requests []peers.Request) ([]timeline.Answer, error) {
	answers := make([]timeline.Answer, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	t := time.NewTicker(apart)
	defer t.Stop()
	for i, q := range requests {
		group.Go(func() (err error) {
			answers[i], err = r.worker.Ask(ctx, q)
			return err
		})
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return answers, group.Wait()
}

// cached is how much of the prompts was not computed, in per cent.
func cached(answers []timeline.Answer) float64 {
	all, hit := 0, 0
	for _, a := range answers {
		all, hit = all+a.Prompt, hit+a.Cached
	}
	if all == 0 {
		return 0
	}
	return 100 * float64(hit) / float64(all)
}
