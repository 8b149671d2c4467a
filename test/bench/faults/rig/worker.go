package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Engine is a scripted engine in a process of its own.
type Engine struct {
	Process
	*engine.Control
	spec engine.Spec
}

// Worker is the real program in a process of its own, with its engine.
type Worker struct {
	Process
	Pod, PodUID, Address string
	Model                discovery.Model // without candidates
	// Engine is nil where the model runs in the worker itself.
	Engine *Engine
	// Host is where it runs; nil: on this machine, beside the routers.
	Host *Host

	rig   *Rig
	probe string // its /health and /readyz
	args  []string
}

// Candidate is the worker as the cluster names it.
func (w *Worker) Candidate() discovery.Candidate {
	return discovery.Candidate{PodName: w.Pod, PodUID: w.PodUID, Address: w.Address}
}

// health is what is read of a worker's /health.
type health struct {
	Loaded   bool   `json:"model_loaded"`
	Instance string `json:"instance_id"`
	Draining bool   `json:"draining"`
}

// health asks the worker for its own view.
func (w *Worker) health(ctx context.Context) (h health, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, w.probe+"/health", nil)
	if err != nil {
		return h, err
	}
	a, err := plain.Do(q)
	if err != nil {
		return h, err
	}
	defer a.Body.Close() //nolint:errcheck // it was read
	err = json.NewDecoder(a.Body).Decode(&h)
	return h, err
}

// Instance is the worker's instance id.
func (w *Worker) Instance(ctx context.Context) (string, error) {
	h, err := w.health(ctx)
	return h.Instance, err
}

// Loaded waits until the worker has loaded its model, and writes down when it was seen to.
func (w *Worker) Loaded(ctx context.Context) error {
	err := until(ctx, time.Minute, 5*time.Millisecond, func(ctx context.Context) error {
		h, err := w.health(ctx)
		switch {
		case err != nil:
			return err
		case !h.Loaded:
			return fmt.Errorf("%s has not loaded its model", w.Pod)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; its log: %s", err, w.Log())
	}
	w.Stands(true)
	return nil
}

// Stands writes down that the worker serves from now on, or no longer does.
func (w *Worker) Stands(serves bool) {
	w.rig.Log.Stands(history.Standing{Pod: w.Pod, At: time.Now(), Serves: serves})
}

// Drain asks the worker to end, as the kubelet does: it drains first.
func (w *Worker) Drain() error {
	w.Stands(false)
	return w.Term()
}

// Restart starts the worker again at the same address: another process, and so another instance. An engine that has ended
// is started, too. It returns at once; Loaded waits.
func (w *Worker) Restart(ctx context.Context) error {
	w.Kill()
	if w.Engine != nil && w.Engine.ended() {
		if err := w.Engine.start(ctx, w); err != nil {
			return err
		}
	}
	w.Stands(false)
	return w.start(ctx)
}

// start starts the worker's own process.
func (w *Worker) start(ctx context.Context) (err error) {
	path, args := w.Host.inside(w.rig.Shared.Worker, w.args)
	w.Process, err = start(ctx, w.rig.dir, w.Pod, path, args...)
	return err
}

// start starts the engine of w.
func (e *Engine) start(ctx context.Context, w *Worker) error {
	text, err := json.Marshal(e.spec)
	if err != nil {
		return err
	}
	path, args := w.Host.inside(w.rig.Shared.Program, []string{roleEngine, string(text)})
	if e.Process, err = start(ctx, w.rig.dir, "engine-"+w.Pod, path, args...); err != nil {
		return err
	}
	err = until(ctx, time.Minute, 5*time.Millisecond, func(ctx context.Context) error {
		_, err := e.State(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; its log: %s", err, e.Log())
	}
	return nil
}

// Place is where and how a worker is started.
type Place struct {
	Pod   string
	Model discovery.Model
	// Plan is its engine's; KeepAlive after how long that closes a connection without a request.
	Plan      engine.Plan
	KeepAlive time.Duration
	// Llama runs the demo's model in the worker, without an engine beside it.
	Llama bool
	Host  *Host
	// Address is taken where it is not empty: that of another worker, which is gone.
	Address string
	// Flags are put behind the worker's others.
	Flags []string
}

// NewWorker starts a worker, and its engine. It returns at once; Loaded waits. No router knows of it yet.
func (r *Rig) NewWorker(ctx context.Context, p Place) (*Worker, error) {
	var at [3]int
	for i := range at {
		var err error
		if at[i], err = r.ports.take(); err != nil {
			return nil, err
		}
	}
	w := &Worker{Pod: p.Pod, PodUID: "uid-" + p.Pod, Model: p.Model, Host: p.Host, rig: r, Address: p.Address}
	listen, probe := local(at[0]), local(at[1])
	if p.Host != nil {
		listen, probe = ":"+strconv.Itoa(at[0]), p.Host.Address+":"+strconv.Itoa(at[1])
		w.Address = p.Host.Address + ":" + strconv.Itoa(at[0])
	} else if w.Address == "" {
		w.Address = listen
	} else {
		listen = w.Address
	}
	w.probe = "http://" + probe
	httpAt := probe
	if p.Host != nil {
		httpAt = ":" + strconv.Itoa(at[1])
	}
	w.args = []string{
		"--model=" + p.Model.Name, "--model-uid=" + p.Model.UID, "--revision=1", "--namespace=" + Namespace, "--pod-name=" + w.Pod,
		"--pod-uid=" + w.PodUID, "--tls-dir=" + filepath.Join(r.keys, "worker"), "--grpc-address=" + listen, "--http-address=" + httpAt,
	}
	if p.Llama {
		w.args = append(w.args, "--weights-dir="+filepath.Dir(r.Shared.Weights), "--weights-file="+filepath.Base(r.Shared.Weights),
			"--library-dir="+r.Shared.Libraries, "--threads=1", "--context-tokens=4096")
	} else {
		w.args = append(w.args, "--driver=openai", "--engine-kind=VLLM", "--engine-url=http://"+local(at[2]), "--max-sequences=128", "--max-waiting=10000")
		w.Engine = &Engine{spec: engine.Spec{Port: at[2], Control: filepath.Join(r.dir, w.Pod+".sock"), Records: r.records(), Pod: w.Pod,
			KeepAlive: p.KeepAlive, Plan: p.Plan}}
		w.Engine.Control = engine.NewControl(w.Engine.spec.Control)
		if err := w.Engine.start(ctx, w); err != nil {
			return nil, err
		}
	}
	w.args = append(w.args, p.Flags...)
	w.Stands(false)
	r.all = append(r.all, w)
	return w, w.start(ctx)
}

// records is the file of all engines.
func (r *Rig) records() string { return filepath.Join(r.dir, "attempts.jsonl") }
