package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// A stream has so many words at this pace: 5 seconds, where a router waits 3 until it takes no more requests.
	streamWords = 51
	pace        = 100 * time.Millisecond
	settle      = 3 * time.Second
)

// three routers and what they need.
var three = rig.Spec{Routers: 3, Workers: 2, Plan: engine.Plan{Between: pace}, Settings: rig.ByKey, Settle: settle, Drain: 2 * time.Minute}

// rollingRestart is F20.
func rollingRestart() []trial.Trial {
	return []trial.Trial{{
		ID: "F20", Says: "three routers are rolled, one after the other, under streams of 5 s and short requests", Times: 1, Takes: 54 * time.Second,
		Most: 6 * time.Minute, Spec: three,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			probing, stop := context.WithCancel(ctx)
			defer stop()
			s, err := open(probing, r)
			if err != nil {
				return nil, err
			}
			var unready, drained trial.Series
			all, err := s.beside(ctx, streamWords, func() error {
				if err := command.Pause(ctx, 3*time.Second); err != nil {
					return err
				}
				for range times {
					for _, x := range r.Routers {
						if err := roll(ctx, s, x, &unready, &drained); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err := errors.Join(err, asked(ctx, r)); err != nil {
				return nil, err
			}
			tellFailed(r, "F20", all)
			streams := among(all, func(c *history.Client) bool { return c.Words == streamWords })
			name := fmt.Sprintf("F20 %d rollings of 3 routers", times)
			return []bench.Figure{
				bench.AtLeast(name+", requests that were answered", share(all), "%", 100),
				bench.AtLeast(name+", streams that came to their end", share(streams), "%", 100),
				bench.Plain(name+", requests", float64(len(all)), ""),
				bench.AtLeast(name+", answers that asked for another connection", float64(s.closing), "", 1),
				bench.AtMost(name+", longest time from SIGTERM until the probe failed", unready.Max(), "s", settle.Seconds()),
				bench.Plain(name+", longest drain", drained.Max(), "s"),
			}, nil
		},
	}}
}

// roll ends a router as a Deployment does, and starts it anew.
func roll(ctx context.Context, s *service, x *rig.Router, unready, drained *trial.Series) error {
	began := time.Now()
	if err := x.Term(); err != nil {
		return err
	}
	err := rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		if x.Ready(ctx) {
			return errors.New(x.Name + " drains and is ready")
		}
		return nil
	})
	if err != nil {
		return err
	}
	unready.Took(time.Since(began))
	select {
	case <-x.Ended():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	drained.Took(time.Since(began))
	if err := s.r.RestartRouter(ctx, x); err != nil {
		return err
	}
	return rig.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		if !s.has(x) {
			return errors.New(x.Name + " is not ready again")
		}
		return nil
	})
}

// keys is how many keys every router is asked for.
const keys = 200

// asked asks every router whose the keys are; the checker compares what they say.
func asked(ctx context.Context, r *rig.Rig) error {
	for _, x := range r.Routers {
		if err := r.InRing(ctx, r.Workers...); err != nil {
			return err
		}
		if _, err := x.Owners(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}

// killedRouter is F21. One of the routers is never killed, so that all its counts can be held to what clients saw.
func killedRouter() []trial.Trial {
	return []trial.Trial{{
		ID: "F21", Says: "kill -9 of one of three routers", Times: 1, Takes: 31 * time.Second, Most: 4 * time.Minute, Spec: three,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			probing, stop := context.WithCancel(ctx)
			defer stop()
			s, err := open(probing, r)
			if err != nil {
				return nil, err
			}
			k := killing{s: s}
			for i := range times {
				if err := k.one(ctx, r.Routers[i%(len(r.Routers)-1)]); err != nil {
					return nil, err
				}
			}
			return k.figures(times), asked(ctx, r)
		},
	}}
}

// killing is what F21 sees.
type killing struct {
	s *service
	// during and after are the shares that were answered of what ran at the kill or began within 10 s, and of what began
	// later; elsewhere counts those that broke on another router, broken those that broke, and had at most those that were in
	// flight on the router: when it was asked, or sent to it between that and the kill.
	during, after          trial.Series
	elsewhere, broken, had float64
}

const recovery = 10 * time.Second

func (k *killing) one(ctx context.Context, x *rig.Router) error {
	var counted, killed time.Time
	all, err := k.s.beside(ctx, streamWords, func() error {
		if err := command.Pause(ctx, 4*time.Second); err != nil {
			return err
		}
		counted = time.Now()
		f, err := x.Figures(ctx)
		if err != nil {
			return err
		}
		k.had += rig.Figure(f, "ringfleet_router_requests_in_flight", nil)
		killed = time.Now()
		x.Kill()
		return command.Pause(ctx, recovery+2*time.Second)
	})
	if err != nil {
		return err
	}
	cut := killed.Add(recovery)
	bad := among(all, func(c *history.Client) bool { return !well(c) })
	tellFailed(k.s.r, "F21", among(bad, func(c *history.Client) bool { return c.Router != x.Name && c.Router != "" }))
	k.had += float64(len(among(all, func(c *history.Client) bool {
		return c.Start.After(counted) && c.Start.Before(killed) && (c.Router == x.Name || c.Router == "")
	})))
	k.broken += float64(len(among(bad, func(c *history.Client) bool { return c.Start.Before(killed) })))
	k.elsewhere += float64(len(among(bad, func(c *history.Client) bool { return c.Router != x.Name && c.Router != "" })))
	k.during.Add(share(among(all, func(c *history.Client) bool { return c.End.After(killed) && c.Start.Before(cut) })))
	k.after.Add(share(among(all, func(c *history.Client) bool { return c.Start.After(cut) })))
	if err := k.s.r.RestartRouter(ctx, x); err != nil {
		return err
	}
	return rig.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		if !k.s.has(x) {
			return errors.New(x.Name + " is not ready again")
		}
		return nil
	})
}

func (k *killing) figures(times int) []bench.Figure {
	name := fmt.Sprintf("F21 %d kills", times)
	return []bench.Figure{
		bench.AtLeast(name+", answered of what ran or began within 10 s", k.during.Quantile(0), "%", 90),
		bench.AtLeast(name+", answered of what began later", k.after.Quantile(0), "%", 100),
		bench.AtLeast(name+", in flight there", k.had, "", 1),
		bench.AtMost(name+", broken that ran at the kill", k.broken, "", k.had),
		bench.AtMost(name+", broken on another router", k.elsewhere, "", 0),
	}
}
