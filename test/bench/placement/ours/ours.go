// Package ours places the requests of a replay with the router's own package placement: its board, its index of
// prefixes, and what workers report each second. A board sees no more of a worker than a router does. Several boards share
// nothing but the members of the ring, and requests go to them in turn. The package decides nothing itself.
package ours

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/ring"
	"github.com/ringfleet/ringfleet/test/bench/placement/peers"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

const (
	modelUID = "9b0b7b1c-0d0e-4a52-8d0c-6f3f1f0a0b01"
	seats    = 256
	// keyBlocks is how many leading blocks of a prompt make its affinity key: the system prompt that all share, and the
	// beginning of a conversation's own.
	keyBlocks = 2
	// mostIDs is how many request ids a report names at most.
	mostIDs = 1024
)

// epoch is the time at which a replay begins. Workers have been there for an hour.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Start returns what makes routers that place by the policy of that name. chains are the prompts' of the trace that is
// replayed; they are read only.
func Start(policy string, routers int, chains []prefix.Chain) (func(*sim.Fleet) sim.Router, error) {
	if _, ok := placement.ByName(policy); !ok {
		return nil, fmt.Errorf("place by %q: the router has no such policy; it has %v", policy, placement.Names())
	}
	if routers < 1 {
		return nil, fmt.Errorf("place with %d routers: want 1 or more", routers)
	}
	return func(f *sim.Fleet) sim.Router { return begin(f, policy, routers, chains) }, nil
}

// routers are one or more boards.
type routers struct {
	fleet   *sim.Fleet
	boards  []*placement.Board
	pods    []string
	number  map[string]int // of a pod
	chains  []prefix.Chain
	tickets []*placement.Ticket  // by the request's index
	sent    [][]placement.Prompt // by the worker's number, since its last report
}

func begin(f *sim.Fleet, policy string, n int, chains []prefix.Chain) *routers {
	r := &routers{fleet: f, number: map[string]int{}, chains: chains, tickets: make([]*placement.Ticket, len(chains)), sent: make([][]placement.Prompt, len(f.Workers))}
	workers := make([]placement.Worker, len(f.Workers))
	for i := range f.Workers {
		pod := "worker-" + strconv.Itoa(i)
		r.pods = append(r.pods, pod)
		r.number[pod] = i
		workers[i] = placement.Worker{Pod: pod, Address: pod, Instance: instance(pod), Loaded: true, InRing: true, Since: epoch.Add(-time.Hour)}
	}
	for range n {
		chosen, _ := placement.ByName(policy)                                                           // Start has asked
		b := placement.NewBoard(placement.Options{Policy: chosen, Index: prefix.New(prefix.Options{})}) // the defaults
		b.Set(map[string][]placement.Worker{modelUID: slices.Clone(workers)}, ring.DefaultVirtualNodes, epoch)
		r.boards = append(r.boards, b)
	}
	return r
}

// instance is the engine process of a pod.
func instance(pod string) string { return pod + "/1" }

// id is a request's.
func id(q *trace.Request) string { return "request-" + strconv.Itoa(q.Index) }

// Place asks the board whose turn it is. Its only errors say that no worker can take the request, which may pass.
func (r *routers) Place(q *trace.Request, now time.Duration) int {
	at := epoch.Add(now)
	t, err := r.boards[q.Index%len(r.boards)].Place(&placement.Request{
		ModelUID: modelUID, RequestID: id(q), Key: peers.Key(q, keyBlocks), Chain: r.chains[q.Index], PromptBytes: q.Input * TokenBytes,
	}, at)
	if err != nil {
		return -1
	}
	t.Accepted(uint32(q.Input), at)
	r.tickets[q.Index] = t
	worker := r.number[t.Worker().Pod]
	if p := prompt(q, r.chains[q.Index]); p.Blocks > 0 {
		r.sent[worker] = append(r.sent[worker], p)
	}
	return worker
}

// prompt is how a worker names a request's prompt; without blocks it doesn't. A trace gives an id of its own to the end of
// a prompt that fills no block of 512 tokens, so that no later turn shares it. A later turn's text does, so that end is
// left out here.
func prompt(q *trace.Request, c prefix.Chain) placement.Prompt {
	n := min(q.Input/trace.BlockTokens*pieces, len(c))
	if n == 0 {
		return placement.Prompt{}
	}
	return placement.Prompt{Hash: c[n-1], Blocks: n}
}

// FirstToken tells the ticket.
func (r *routers) FirstToken(j *sim.Job, now time.Duration) {
	r.tickets[j.Request.Index].FirstToken(epoch.Add(now))
}

// Ended tells the ticket what the worker said of the request.
func (r *routers) Ended(j *sim.Job, now time.Duration) {
	r.tickets[j.Request.Index].Ended(placement.Result{
		Answered: true, PromptTokens: uint32(j.Request.Input), CachedTokens: uint32(j.Cached), CompletionTokens: uint32(j.Request.Output),
	}, epoch.Add(now))
	r.tickets[j.Request.Index] = nil
}

// Report tells all boards what a worker says of itself.
func (r *routers) Report(worker int, now time.Duration) {
	l := load(r.fleet.Workers[worker], now)
	l.Prompts, r.sent[worker] = r.sent[worker], nil
	for _, b := range r.boards {
		b.Observe(modelUID, r.pods[worker], instance(r.pods[worker]), l, epoch.Add(now))
	}
}

// load is a worker's report. It knows its rates once it has computed something.
func load(w *sim.Worker, now time.Duration) placement.Load {
	waiting, total, used, backlog := w.Waiting(now), uint64(w.Room()), uint64(w.Held(now)), uint64(w.Backlog(now))
	l := placement.Load{
		Running: len(w.Jobs()) - waiting, Waiting: waiting, Seats: seats, KVTotal: &total, KVUsed: &used, Backlog: &backlog,
	}
	if rate := w.Rate(now); rate > 0 {
		l.Prefill = &rate
	}
	for _, j := range w.Jobs()[:min(mostIDs, len(w.Jobs()))] {
		l.RequestIDs = append(l.RequestIDs, id(j.Request))
	}
	return l
}
