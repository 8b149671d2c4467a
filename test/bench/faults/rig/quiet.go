package rig

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// quiet is what a router holds while nobody asks it.
type quiet struct{ goroutines, files int }

const prefix = "ringfleet_router_"

func quietOf(f map[string]*dto.MetricFamily) quiet {
	return quiet{int(Goroutines(f)), int(Figure(f, "process_open_fds", nil))}
}

// Goroutines is how many a router has, without those of the streams to workers that wait for their next request: these are
// bounded, and end when they have waited for half a minute.
func Goroutines(f map[string]*dto.MetricFamily) float64 {
	return Figure(f, "go_goroutines", nil) - Figure(f, prefix+"worker_streams_resting", nil)
}

// Warm asks every worker something, so that all connections are there that stay, and remembers what the routers hold then. Its
// requests are in the log, too.
func (r *Rig) Warm(ctx context.Context, workers int) error {
	for _, x := range r.Routers {
		all := x.Client.Many(ctx, 12*workers, 2, func(i int) client.Request {
			return client.Request{Model: r.Model.Name, Words: 1, Free: r.Spec.Llama, Stream: i%2 == 0, Prompt: "Number " + strconv.Itoa(i)}
		})
		for i := range all {
			if all[i].Outcome() != history.Completed {
				return fmt.Errorf("%s does not answer while all is well: %d %s %s", x.Name, all[i].Status, all[i].Code, all[i].Broken)
			}
		}
	}
	return r.Remember(ctx)
}

// Remember takes what the routers hold now, once that no longer changes, for what they held before the fault.
func (r *Rig) Remember(ctx context.Context) error {
	for _, x := range r.Routers {
		x.Client.Close()
		if _, err := x.Status(ctx); err != nil {
			return err
		}
		var now quiet
		err := until(ctx, settle, 50*time.Millisecond, func(ctx context.Context) error {
			last := now
			f, err := x.Figures(ctx)
			if err != nil {
				return err
			}
			if now = quietOf(f); now != last {
				return errNotQuiet
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.before = now
	}
	return nil
}

// settle is how long routers may take until nothing is left of what has ended.
const settle = 10 * time.Second

// Quiesce waits until the routers are quiet, at most for a time, and returns the whole history.
func (r *Rig) Quiesce(ctx context.Context) (history.History, error) {
	for _, x := range r.Routers {
		x.Client.Close()
		if x.ended() {
			continue
		}
		var last history.Router
		heard := false
		err := until(ctx, settle, 100*time.Millisecond, func(ctx context.Context) error {
			now, err := x.record(ctx, r.alone)
			if err != nil {
				return err
			}
			last, heard = now, true
			a := history.DefaultAllowance
			switch {
			case last.InFlight != 0, last.Queued != 0, last.Held != 0, last.OnWorkers != 0:
				return errNotQuiet
			case last.Goroutines > last.GoroutinesBefore+a.Goroutines/2, last.Files > last.FilesBefore+a.Files/2:
				return errNotQuiet
			}
			return nil
		})
		if err != nil && !heard {
			return history.History{}, fmt.Errorf("ask %s after the fault: %w", x.Name, err)
		}
		r.Log.Router(last) // whether it is quiet is the checker's to say
	}
	attempts, err := engine.Attempts(r.records())
	if err != nil {
		return history.History{}, err
	}
	h := r.Log.History()
	h.Attempts = append(h.Attempts, attempts...)
	return h, nil
}

var errNotQuiet = fmt.Errorf("something is still under way")

// record is what a router says of itself now.
func (x *Router) record(ctx context.Context, alone bool) (history.Router, error) {
	out := history.Router{Name: x.Name, Whole: x.whole, Alone: alone, Outcomes: map[string]float64{},
		Members: map[string][]string{}, Ring: map[string]uint64{}, Owners: map[string]map[string]string{}}
	f, err := x.Figures(ctx)
	if err != nil {
		return out, err
	}
	for _, m := range f[telemetry.RouterRequests].GetMetric() {
		out.Outcomes[label(m, "outcome")] += m.GetCounter().GetValue()
	}
	out.InFlight = Figure(f, prefix+"requests_in_flight", nil)
	out.Queued, out.Held = Figure(f, prefix+"requests_queued", nil), Figure(f, prefix+"requests_held", nil)
	out.AnswerTokens = Figure(f, prefix+"completion_tokens_total", nil)
	now := quietOf(f)
	out.Goroutines, out.Files = now.goroutines, now.files
	if x.whole {
		out.GoroutinesBefore, out.FilesBefore = x.before.goroutines, x.before.files
	}
	s, err := x.Status(ctx)
	if err != nil {
		return out, err
	}
	for _, m := range s.GetModels() {
		out.Members[m.GetModel()] = []string{}
		out.Ring[m.GetModel()] = m.GetRingVersion()
		if m.GetModelUid() == NewModel(ModelName).UID && x.owners != nil {
			out.Owners[m.GetModel()] = x.owners
		}
		for _, w := range m.GetWorkers() {
			out.OnWorkers += int(w.GetInFlight())
			if w.GetInRing() {
				out.Members[m.GetModel()] = append(out.Members[m.GetModel()], w.GetPodName())
			}
		}
	}
	return out, nil
}

// Keep writes a history into a file, for people.
func Keep(file string, h *history.History) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = history.Write(f, h)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
