// Package measure runs Ringfleet's router and its peers in front of the same workers, in turns, and beside the direct way
// to a worker. Every program is a process of its own, the load too, so that a router's processor time is its own. What is
// measured, and with which numbers, is decided here; whether a figure is good is a row's goal.
package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/router/load"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
	"github.com/ringfleet/ringfleet/test/bench/router/ours"
	"github.com/ringfleet/ringfleet/test/bench/router/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Ours is the name of Ringfleet's router, Direct that of the way without a router.
const (
	Ours   = "ringfleet"
	Direct = "direct"
)

// workers is how many there are.
const workers = 2

// Side is a way to the workers.
type Side struct {
	Name    string
	address string
	process *process.Process // nil: direct
}

// Rig is all programs, and what they are asked.
type Rig struct {
	// Dir is for files, Root the tree, Program the one that plays the roles; Out is told of progress.
	Dir, Root, Program string
	// Profiles is the folder that a CPU profile of each of Ringfleet's routers goes into; empty for none.
	Profiles string
	Out      io.Writer
	Peers    []string
	Sides    []*Side

	started  []*process.Process
	profiled int
}

// Roles of this program.
const (
	RoleHTTP  = "workers-http"
	RoleGRPC  = "workers-grpc"
	RoleRoute = "route"
	RoleLoad  = "load"
)

// Workers is what both kinds of workers are told.
type Workers struct {
	ours.Spec
	Plan mock.Plan `json:"plan"`
}

// start starts the workers with a plan, and all sides.
func (r *Rig) start(ctx context.Context, p mock.Plan) error {
	var at [2*workers + 3]int
	for i := range at {
		port, err := process.Port()
		if err != nil {
			return err
		}
		at[i] = port
	}
	keys := filepath.Join(r.Dir, "keys")
	if err := ours.Keys(keys); err != nil {
		return err
	}
	http, grpc := at[:workers], at[workers:2*workers]
	front, control, ops := at[2*workers], at[2*workers+1], at[2*workers+2]
	if _, err := r.role(ctx, RoleHTTP, Workers{ours.Spec{Ports: http}, p}); err != nil {
		return err
	}
	spec := ours.Spec{Keys: keys, HTTP: front, GRPC: control, Ops: ops, Ports: grpc}
	if _, err := r.role(ctx, RoleGRPC, Workers{spec, p}); err != nil {
		return err
	}
	if r.Profiles != "" {
		r.profiled++
		spec.Profile = filepath.Join(r.Profiles, fmt.Sprintf("router-%d.pprof", r.profiled))
	}
	route, err := r.role(ctx, RoleRoute, spec)
	if err != nil {
		return err
	}
	r.Sides = []*Side{{Name: Direct, address: local(http[0])}, {Name: Ours, address: local(front), process: route}}
	for _, name := range r.Peers {
		port, err := process.Port()
		if err != nil {
			return err
		}
		p, err := peers.Start(ctx, name, r.Dir, port, http, r.Out)
		if err != nil {
			return err
		}
		r.started = append(r.started, p)
		r.Sides = append(r.Sides, &Side{Name: name, address: local(port), process: p})
	}
	for _, s := range r.Sides {
		if err := r.await(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all programs. A router of which there is a profile writes it first.
func (r *Rig) stop() error {
	var err error
	for _, s := range r.Sides {
		if s.Name == Ours && r.Profiles != "" {
			err = s.process.Term()
		}
	}
	for i := len(r.started) - 1; i >= 0; i-- {
		r.started[i].Stop()
	}
	r.started, r.Sides = nil, nil
	return err
}

// role starts this program in another role.
func (r *Rig) role(ctx context.Context, name string, spec any) (*process.Process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p, err := peers.Quiet(ctx, filepath.Join(r.Dir, name+".log"), r.Program, name, string(text))
	if err == nil {
		r.started = append(r.started, p)
	}
	return p, err
}

// patience is how long a side may take until it answers.
const patience = time.Minute

// await waits until a side answers.
func (r *Rig) await(ctx context.Context, s *Side) error {
	t := target(s.address, false, 100)
	until := time.Now().Add(patience)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		times := load.Closed(ctx, t, 1, time.Millisecond)
		if times.Requests > 0 && times.Failed == 0 {
			return nil
		}
		var lost <-chan struct{}
		if s.process != nil {
			lost = s.process.Ended()
		}
		select {
		case <-tick.C:
		case <-lost:
			return fmt.Errorf("%s ended by itself: %s", s.Name, r.log(s.Name))
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s does not answer within %s: %s; its log: %s", s.Name, patience, times.Error, r.log(s.Name))
		}
	}
}

// log is the end of a side's log.
func (r *Rig) log(name string) string {
	if name == Ours {
		name = RoleRoute
	}
	text, _ := os.ReadFile(filepath.Join(r.Dir, name+".log"))
	return strings.TrimSpace(string(text[max(0, len(text)-2048):]))
}

func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// sessions is how many conversations the load has.
const sessions = 64

// target asks a side with prompts of so many bytes, in as many conversations as there are sessions.
func target(address string, stream bool, bytesOfPrompt int) load.Target {
	t := load.Target{Address: address}
	for i := range sessions {
		t.Requests = append(t.Requests, load.Request("/v1/chat/completions", mock.Body(stream, bytesOfPrompt, i),
			peers.SessionHeader+": session-"+strconv.Itoa(i)))
	}
	return t
}
