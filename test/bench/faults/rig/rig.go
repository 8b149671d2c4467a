// Package rig starts what faults are done to: routers, workers and engines, each a process of its own that signals can be
// sent to, and tells the routers who the members are. The routers and the workers are the real programs, but for the cluster's
// state, which the rig tells; the engines are scripted. It decides nothing of a fault and judges nothing.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Shared is what all rigs have in common.
type Shared struct {
	// Program is this one, which plays routers and engines; Worker is the worker's.
	Program, Worker string
	// Libraries and Weights are llama.cpp's and the demo model's; needed where workers run it.
	Libraries, Weights string
	// Dir is for files; Root is the repository's.
	Dir, Root string
	Out       io.Writer
}

// Spec is what a rig begins with.
type Spec struct {
	// Routers and Workers are how many; 0 routers is 1.
	Routers, Workers int
	// Settings changes what routers have by default.
	Settings func(*discovery.Settings)
	// Plan is that of all engines; KeepAlive after how long they close a connection without a request.
	Plan      engine.Plan
	KeepAlive time.Duration
	// Llama runs the demo's model in the workers.
	Llama bool
	// Settle and Drain are the times of the routers' drain; 0 is the default.
	Settle, Drain time.Duration
	// MaxConnections is how many clients may have open at each router; 0 is the default.
	MaxConnections int
}

// Rig is all that runs.
type Rig struct {
	Shared  Shared
	Spec    Spec
	Routers []*Router
	Workers []*Worker
	Log     *history.Log
	// Model is what the workers of Spec serve; Settings are the routers'.
	Model    discovery.Model
	Settings discovery.Settings

	dir, keys string
	ports     ports
	hosts     []*Host
	all       []*Worker
	closers   []func()
	alone     bool
}

// NewModel is a model of that name.
func NewModel(name string) discovery.Model {
	return discovery.Model{UID: "uid-" + name, Object: name, Name: name, ServedNames: []string{name}, Created: time.Unix(1_700_000_000, 0)}
}

// ModelName is the name of the model that a rig's workers serve.
const ModelName = "faults"

// Start starts a rig, and returns when all its workers are in the rings of all its routers. Close must be called whatever
// it returns.
func Start(ctx context.Context, shared Shared, s Spec) (*Rig, error) {
	r := &Rig{Shared: shared, Spec: s, Log: &history.Log{}, Model: NewModel(ModelName), Settings: discovery.DefaultSettings(), alone: true}
	if s.Settings != nil {
		s.Settings(&r.Settings)
	}
	var err error
	if r.dir, err = os.MkdirTemp(shared.Dir, "rig-"); err != nil {
		return r, err
	}
	r.keys = filepath.Join(r.dir, "keys")
	if err := writeKeys(r.keys); err != nil {
		return r, err
	}
	for i := range s.Workers {
		w, err := r.NewWorker(ctx, Place{Pod: "worker-" + strconv.Itoa(i), Model: r.Model, Plan: s.Plan, KeepAlive: s.KeepAlive, Llama: s.Llama})
		if err != nil {
			return r, err
		}
		r.Workers = append(r.Workers, w)
	}
	for _, w := range r.Workers {
		if err := w.Loaded(ctx); err != nil {
			return r, err
		}
	}
	for i := range max(s.Routers, 1) {
		if err := r.newRouter(ctx, "router-"+strconv.Itoa(i)); err != nil {
			return r, err
		}
	}
	if err := r.Members(ctx, r.Workers...); err != nil {
		return r, err
	}
	if err := r.InRing(ctx, r.Workers...); err != nil {
		return r, err
	}
	return r, r.Warm(ctx, len(r.Workers))
}

// newRouter starts a router that knows nothing of the cluster yet.
func (r *Rig) newRouter(ctx context.Context, name string) error {
	var at [4]int
	for i := range at {
		var err error
		if at[i], err = r.ports.take(); err != nil {
			return err
		}
	}
	x := &Router{Name: name, URL: "http://" + local(at[0]), Ops: "http://" + local(at[2]), whole: true, spec: routeSpec{
		Keys: r.keys, Name: name, HTTP: at[0], GRPC: at[1], Ops: at[2], Control: at[3], Settle: 5 * time.Second, Drain: 10 * time.Minute}}
	if r.Spec.Settle > 0 {
		x.spec.Settle = r.Spec.Settle
	}
	if r.Spec.Drain > 0 {
		x.spec.Drain = r.Spec.Drain
	}
	x.spec.MaxConnections = r.Spec.MaxConnections
	x.Client = client.New(name, x.URL, r.Log)
	creds, done, err := asManager(r.keys)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, done)
	if err := x.connect(creds); err != nil {
		return err
	}
	r.closers = append(r.closers, func() { _ = x.conn.Close() })
	r.Routers = append(r.Routers, x)
	return r.startRouter(ctx, x)
}

// startRouter starts a router's process, and returns when it listens.
func (r *Rig) startRouter(ctx context.Context, x *Router) error {
	text, err := json.Marshal(x.spec)
	if err != nil {
		return err
	}
	if x.Process, err = start(ctx, r.dir, x.Name, r.Shared.Program, roleRoute, string(text)); err != nil {
		return err
	}
	err = until(ctx, time.Minute, 10*time.Millisecond, func(ctx context.Context) error { return get(ctx, x.Ops+"/livez") })
	if err != nil {
		return fmt.Errorf("%s does not start: %w; its log: %s", x.Name, err, x.Log())
	}
	return nil
}

// RestartRouter starts a router that has ended anew, at its addresses and with what it was last told.
func (r *Rig) RestartRouter(ctx context.Context, x *Router) error {
	x.Kill()
	x.whole, x.owners = false, nil
	return r.startRouter(ctx, x)
}

// State is the cluster with those workers, by their models. A rig's own model is in it without any, too.
func (r *Rig) State(workers ...*Worker) discovery.State {
	s := discovery.State{Synced: true, Settings: r.Settings, Models: []discovery.Model{r.Model}}
	at := map[string]int{r.Model.UID: 0}
	for _, w := range workers {
		i, ok := at[w.Model.UID]
		if !ok {
			i = len(s.Models)
			at[w.Model.UID] = i
			s.Models = append(s.Models, w.Model)
		}
		s.Models[i].Candidates = append(s.Models[i].Candidates, w.Candidate())
	}
	return s
}

// Tell tells all routers that run of a state.
func (r *Rig) Tell(ctx context.Context, s discovery.State) error {
	var errs []error
	for _, x := range r.Routers {
		if !x.ended() {
			errs = append(errs, x.Tell(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// Members tells all routers who the workers are.
func (r *Rig) Members(ctx context.Context, workers ...*Worker) error {
	return r.Tell(ctx, r.State(workers...))
}

// InRing waits until the workers are in the rings of all routers that run.
func (r *Rig) InRing(ctx context.Context, workers ...*Worker) error {
	for _, x := range r.Routers {
		if x.ended() {
			continue
		}
		for _, w := range workers {
			if err := x.Await(ctx, w.Pod, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// patience is how long anything may take that is bound to come.
const patience = time.Minute

// Await waits until a worker is in the ring, or no longer is.
func (x *Router) Await(ctx context.Context, pod string, in bool) error {
	return until(ctx, patience, 10*time.Millisecond, func(ctx context.Context) error {
		is, err := x.InRing(ctx, pod)
		if err == nil && is != in {
			err = fmt.Errorf("%s in the ring of %s: %t", pod, x.Name, is)
		}
		return err
	})
}

// Foreign says that routers are asked by others than recorded clients, too, so that their counts may be more.
func (r *Rig) Foreign() { r.alone = false }

// Dir is for files of a fault.
func (r *Rig) Dir() string { return r.dir }

// Port is one that nobody listens on.
func (r *Rig) Port() (int, error) { return r.ports.take() }

// Until asks again and again whether something is so, for at most a minute.
func Until(ctx context.Context, every time.Duration, is func(context.Context) error) error {
	return until(ctx, patience, every, is)
}

// Close ends all processes.
func (r *Rig) Close() error {
	for _, x := range r.Routers {
		_ = x.Cont() // one that is stopped can't be waited for
		x.Kill()
	}
	for _, w := range r.all {
		w.Kill()
		if w.Engine != nil {
			w.Engine.Kill()
		}
	}
	for _, c := range r.closers {
		c()
	}
	var errs []error
	for _, h := range r.hosts {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		errs = append(errs, h.close(ctx))
		cancel()
	}
	return errors.Join(errs...)
}
