// Package exact plays routers' placement against workers' schedulers on simulated devices: what a router believes that a worker
// has of a prompt is what the worker finds when the prompt comes.
package exact

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/ring"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	uid        = "model"
	hang       = 60 * time.Second
	tokenBytes = 4 // of text, so 16 tokens are a block of 64 bytes
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fleet is some workers and some routers, of which each has heard of every worker's prompts up to a number.
type fleet struct {
	t       *rapid.T
	pods    []string
	engines []engine.Engine
	boards  []*placement.Board
	heard   [][]uint64 // by board and engine
	sent    int
}

func newFleet(t *rapid.T, workers, routers int) *fleet {
	f := &fleet{t: t}
	var members []placement.Worker
	for i := range workers {
		pod := fmt.Sprint("worker-", i)
		e, err := scheduler.New(sim.New(sim.Options{
			Text: "ok", ContextTokens: 400, Sequences: rapid.SampledFrom([]int{2, 4, 12}).Draw(t, "sequences"),
			KVTokens: rapid.SampledFrom([]int{416, 640, 1600}).Draw(t, "cells"), Adapters: true, AbortMidStep: true, Clock: clock.RealClock{},
		}), scheduler.Options{
			MaxSequences: 2, MaxWaiting: 8, StepTokens: 64, MaxIdle: 8, IdleBlocks: 1000, Clock: clock.RealClock{}, Log: logr.Discard(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.LoadAdapter(context.Background(), engine.Adapter{Name: "tuned", Path: "tuned.gguf"}); err != nil {
			t.Fatal(err)
		}
		f.pods, f.engines = append(f.pods, pod), append(f.engines, e)
		members = append(members, placement.Worker{Pod: pod, Address: pod, Instance: "i", Loaded: true, Since: epoch.Add(-time.Hour)})
	}
	for range routers {
		policy, _ := placement.ByName("RoundRobin")
		b := placement.NewBoard(placement.Options{Policy: policy, Index: prefix.New(prefix.Options{MaxBytes: 1 << 20})})
		b.Set(map[string][]placement.Worker{uid: members}, ring.DefaultVirtualNodes, epoch)
		f.boards, f.heard = append(f.boards, b), append(f.heard, make([]uint64, workers))
	}
	f.reportAll() // a worker is heard before it comes into the ring
	for i := range members {
		members[i].InRing = true
	}
	for _, b := range f.boards {
		b.Set(map[string][]placement.Worker{uid: members}, ring.DefaultVirtualNodes, epoch)
	}
	return f
}

func (f *fleet) close() {
	for _, e := range f.engines {
		if err := e.Close(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// report tells a board what is new on a worker, as reports do, a few prompts at a time.
func (f *fleet) report(board, worker int) {
	for more := true; more; {
		news, next, whole := f.engines[worker].(engine.Follower).Prompts(f.heard[board][worker], 3)
		f.heard[board][worker] = next
		l := placement.Load{Seats: 2, KVTotal: new(uint64(1600)), KVUsed: new(uint64(0)), Exact: whole, Adapters: []string{"tuned"}}
		for _, n := range news {
			l.Prompts = append(l.Prompts, placement.Prompt{Hash: n.Hash, Blocks: int(n.Blocks), Lost: int(n.Blocks - n.Held), Number: n.Number})
		}
		f.boards[board].Observe(uid, f.pods[worker], "i", l, epoch)
		more = len(news) == 3
	}
}

func (f *fleet) reportAll() {
	for board := range f.boards {
		for worker := range f.engines {
			f.report(board, worker)
		}
	}
}

// asked is a prompt: pieces of 16 tokens, and five more.
type asked struct {
	pieces        []byte
	salt, adapter string
}

func (a asked) tokens() (out []engine.Token) {
	for _, p := range a.pieces {
		for k := range 16 {
			out = append(out, engine.Token(p)+engine.Token(k))
		}
	}
	return append(out, 1, 2, 3, 4, 5)
}

func (a asked) chain(tokens []engine.Token) prefix.Chain {
	b := prefix.Begin(nil, uid, a.adapter, a.salt)
	for _, t := range tokens {
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(t)))
	}
	return b.Chain()
}

// prompt draws one that begins like others.
func (f *fleet) prompt() asked {
	return asked{
		pieces:  rapid.SliceOfN(rapid.SampledFrom([]byte{20, 20, 20, 60, 90}), 1, 20).Draw(f.t, "pieces"),
		salt:    rapid.SampledFrom([]string{"", "", "a"}).Draw(f.t, "salt"),
		adapter: rapid.SampledFrom([]string{"", "", "tuned"}).Draw(f.t, "adapter"),
	}
}

// call is a request that a board has placed, and what the board expected of its worker.
type call struct {
	board    int
	worker   int
	ticket   *placement.Ticket
	request  *engine.Request
	expected int
	stream   engine.Stream
}

func (f *fleet) place(board int, a asked) *call {
	tokens := a.tokens()
	chain := a.chain(tokens)
	f.sent++
	q := &placement.Request{
		ModelUID: uid, RequestID: fmt.Sprint(f.sent), Adapter: a.adapter, Key: []byte("key"), Chain: chain,
		PromptBytes: len(tokens) * tokenBytes, PromptTokens: uint32(len(tokens)),
	}
	t, err := f.boards[board].Place(q, epoch)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &call{board: board, ticket: t, expected: int(math.Round(float64(t.Decision().Chosen.Cached)))}
	for i, pod := range f.pods {
		if pod == t.Worker().Pod {
			c.worker = i
		}
	}
	c.request = &engine.Request{
		ID: q.RequestID, Prompt: engine.Prompt{Tokens: tokens}, MaxTokens: 2, CacheSalt: a.salt, Adapter: a.adapter,
		Name: engine.PromptName{Hash: chain[len(chain)-1], Blocks: uint32(len(chain)), Bytes: uint64(q.PromptBytes)},
	}
	return c
}

// begin asks the worker.
func (f *fleet) begin(c *call) {
	s, err := f.engines[c.worker].Generate(context.Background(), c.request)
	if err != nil {
		f.t.Fatal(err)
	}
	c.stream = s
	switch rapid.SampledFrom([]string{"at once", "at once", "after a report", "after its end and a report"}).Draw(f.t, "the router hears of it") {
	case "after its end and a report":
		f.quiet(c.worker)
		fallthrough
	case "after a report":
		f.report(c.board, c.worker)
	}
	c.ticket.Numbered(s.(engine.Numbered).PromptNumber())
	c.ticket.Accepted(uint32(s.PromptTokens()), epoch)
}

// finish reads the answer, and returns what the worker had of the prompt.
func (f *fleet) finish(c *call) (cached int) {
	for {
		chunk, err := c.stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.t.Fatal(err)
		}
		if chunk.Finish != "" {
			cached = chunk.Usage.Cached
			c.ticket.Ended(placement.Result{
				Answered: true, PromptTokens: uint32(chunk.Usage.Prompt), CachedTokens: uint32(cached), CompletionTokens: 2,
			}, epoch)
		}
	}
	return cached
}

// quiet waits until a worker has given back all that requests held.
func (f *fleet) quiet(worker int) {
	end := time.Now().Add(hang)
	for *f.engines[worker].Stats().KVBlocksUsed > 0 {
		if time.Now().After(end) {
			f.t.Fatal("hangs: blocks stay in use")
		}
		runtime.Gosched()
	}
}

// odd does one request that does not come to its end, or is refused.
func (f *fleet) odd() {
	board := rapid.IntRange(0, len(f.boards)-1).Draw(f.t, "board")
	c := f.place(board, f.prompt())
	switch rapid.SampledFrom([]string{"lost on the way", "refused", "cancelled"}).Draw(f.t, "what comes of it") {
	case "lost on the way":
	case "refused":
		c.request.MaxTokens = 1 << 20
		if _, err := f.engines[c.worker].Generate(context.Background(), c.request); err == nil {
			f.t.Fatal("a worker took a request that is too long")
		}
	case "cancelled":
		f.begin(c)
		if err := c.stream.Close(); err != nil {
			f.t.Fatal(err)
		}
		f.quiet(c.worker)
	}
	c.ticket.Ended(placement.Result{}, epoch)
}

// pair runs two requests side by side, with reports between.
func (f *fleet) pair() {
	var calls []*call
	for range 2 {
		c := f.place(rapid.IntRange(0, len(f.boards)-1).Draw(f.t, "board"), f.prompt())
		f.begin(c)
		calls = append(calls, c)
		if rapid.Bool().Draw(f.t, "report between") {
			f.report(c.board, c.worker)
		}
	}
	for _, c := range calls {
		f.finish(c)
	}
}

func play(t *rapid.T, routers int, compare func(c *call, cached int)) {
	f := newFleet(t, 2, routers)
	defer f.close()
	for range 40 {
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			f.odd()
		case 1:
			f.pair()
		case 2:
			f.report(rapid.IntRange(0, routers-1).Draw(t, "board"), rapid.IntRange(0, 1).Draw(t, "worker"))
		default:
			for worker := range f.engines {
				f.quiet(worker)
			}
			f.reportAll()
			c := f.place(rapid.IntRange(0, routers-1).Draw(t, "board"), f.prompt())
			f.begin(c)
			compare(c, f.finish(c))
		}
	}
}

func TestARouterExpectsOfAWorkersCacheWhatTheWorkerThenFinds(t *testing.T) {
	hits, lost := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		play(t, 1, func(c *call, cached int) {
			if c.expected != cached {
				t.Fatalf("request %s: the router expected %d of %d tokens, the worker had %d", c.request.ID, c.expected, len(c.request.Prompt.Tokens), cached)
			}
			if cached > 0 {
				hits++
			} else {
				lost++
			}
		})
	})
	if hits == 0 || lost == 0 {
		t.Errorf("%d requests found something and %d nothing: that shows little", hits, lost)
	}
}

// TestOfSeveralRoutersNoneExpectsMoreThanTheWorkerHas: of what other routers have sent it knows only whole prompts.
func TestOfSeveralRoutersNoneExpectsMoreThanTheWorkerHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		play(t, 3, func(c *call, cached int) {
			if c.expected > cached {
				t.Fatalf("request %s: router %d expected %d of %d tokens, the worker had %d", c.request.ID, c.board, c.expected, len(c.request.Prompt.Tokens), cached)
			}
		})
	})
}
