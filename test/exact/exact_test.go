// Package exact plays routers' placement against workers' schedulers on simulated devices: what a router believes that a worker
// has of a prompt is what the worker finds when the prompt comes.
package exact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
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
	uid  = "model"
	hang = 60 * time.Second
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tongue is a vocabulary in which each token's text is so long, and tells which token it is.
type tongue struct {
	sim.Vocabulary
	pieces [][]byte
}

func newTongue(length func(t int) int) *tongue {
	v := &tongue{}
	for t := range 258 {
		v.pieces = append(v.pieces, bytes.Repeat([]byte{byte(t)}, length(t)))
	}
	return v
}

func (v *tongue) Piece(t engine.Token) []byte { return v.pieces[t] }

func (v *tongue) text(tokens []engine.Token) (out []byte) {
	for _, t := range tokens {
		out = append(out, v.Piece(t)...)
	}
	return out
}

// even: 16 tokens are a block of 64 bytes.
func even(int) int { return 4 }

// uneven: they are 16 to 112 bytes, those of one kind of piece as much as of seven of another.
func uneven(t int) int {
	if t < 60 {
		return 1
	}
	return 7
}

// fleet is some workers and some routers, of which each has heard of every worker's prompts up to a number.
type fleet struct {
	t       *rapid.T
	tongue  *tongue
	pods    []string
	engines []engine.Engine
	boards  []*placement.Board
	heard   [][]uint64 // by board and engine
	missed  [][]uint64
	sent    int
	asked   []asked
}

func newFleet(t *rapid.T, workers, routers int, length func(int) int) *fleet {
	f := &fleet{t: t, tongue: newTongue(length)}
	var members []placement.Worker
	for i := range workers {
		pod := fmt.Sprint("worker-", i)
		loaded := sim.New(sim.Options{
			Text: "ok", ContextTokens: 400, Sequences: rapid.SampledFrom([]int{3, 4, 12}).Draw(t, "sequences"),
			KVTokens: rapid.SampledFrom([]int{416, 640, 1600}).Draw(t, "cells"), Adapters: true, AbortMidStep: true, Clock: clock.RealClock{},
		})
		loaded.Vocabulary = f.tongue
		e, err := scheduler.New(loaded, scheduler.Options{
			MaxSequences: 2, MaxWaiting: 8, StepTokens: 64, MaxIdle: 8, IdleBlocks: 1000, Clock: clock.RealClock{}, Log: logr.Discard(),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.pods, f.engines = append(f.pods, pod), append(f.engines, e)
		f.load(i)
		members = append(members, placement.Worker{Pod: pod, Address: pod, Instance: "i", Loaded: true, Since: epoch.Add(-time.Hour)})
	}
	for range routers {
		policy, _ := placement.ByName("RoundRobin")
		b := placement.NewBoard(placement.Options{Policy: policy, Index: prefix.New(prefix.Options{MaxBytes: 1 << 20})})
		b.Set(map[string][]placement.Worker{uid: members}, ring.DefaultVirtualNodes, epoch)
		f.boards, f.heard, f.missed = append(f.boards, b), append(f.heard, make([]uint64, workers)), append(f.missed, make([]uint64, workers))
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

// load gives a worker the adapter, or another one under its name.
func (f *fleet) load(worker int) {
	if err := f.engines[worker].LoadAdapter(context.Background(), engine.Adapter{Name: "tuned", Path: "tuned.gguf"}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) close() {
	for _, e := range f.engines {
		if err := e.Close(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) board() int  { return rapid.IntRange(0, len(f.boards)-1).Draw(f.t, "board") }
func (f *fleet) worker() int { return rapid.IntRange(0, len(f.engines)-1).Draw(f.t, "worker") }

// report tells a board what is new on a worker, as reports do, a few prompts at a time.
func (f *fleet) report(board, worker int) {
	for more := true; more; {
		news, next, missed := f.engines[worker].(engine.Follower).Prompts(f.heard[board][worker], 3)
		f.heard[board][worker] = next
		l := placement.Load{
			Seats: 2, KVTotal: new(uint64(1600)), KVUsed: new(uint64(0)), Exact: true, Adapters: []string{"tuned"},
			Missed: max(missed, f.missed[board][worker]),
		}
		for _, n := range news {
			l.Prompts = append(l.Prompts, placement.Prompt{
				Hash: n.Hash, Blocks: int(n.Blocks), Lost: int(n.Blocks - n.Held), Number: n.Number, Left: !n.Inside, Heir: n.Heir,
			})
		}
		f.boards[board].Observe(uid, f.pods[worker], "i", l, epoch)
		more = len(news) == 3
	}
}

// miss lets a board miss what a worker has to tell now.
func (f *fleet) miss(board, worker int) {
	_, next, _ := f.engines[worker].(engine.Follower).Prompts(f.heard[board][worker], 1<<20)
	f.heard[board][worker], f.missed[board][worker] = next, next-1
}

func (f *fleet) reportAll() {
	for board := range f.boards {
		for worker := range f.engines {
			f.report(board, worker)
		}
	}
}

// asked is a prompt: pieces of 16 tokens, and five more. One without pieces is shorter than a block of the cache.
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
	if len(a.pieces) == 0 {
		return append(out, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 20, 21, 22, 23, 24)
	}
	return append(out, 1, 2, 3, 4, 5)
}

// prompt draws one that begins like others, or that was sent before.
func (f *fleet) prompt() asked {
	if len(f.asked) > 0 && rapid.IntRange(0, 3).Draw(f.t, "again") == 0 {
		return rapid.SampledFrom(f.asked).Draw(f.t, "prompt")
	}
	a := asked{
		pieces:  rapid.SliceOfN(rapid.SampledFrom([]byte{20, 20, 20, 60, 90}), 0, 20).Draw(f.t, "pieces"),
		salt:    rapid.SampledFrom([]string{"", "", "a"}).Draw(f.t, "salt"),
		adapter: rapid.SampledFrom([]string{"", "", "tuned"}).Draw(f.t, "adapter"),
	}
	f.asked = append(f.asked, a)
	return a
}

// call is a request that a board has placed, and what the board expected of its worker.
type call struct {
	board    int
	worker   int
	ticket   *placement.Ticket
	request  *engine.Request
	expected int // tokens
	stream   engine.Stream
}

func (f *fleet) place(board int, a asked) *call {
	tokens := a.tokens()
	text := f.tongue.text(tokens)
	b := prefix.Begin(nil, uid, a.adapter, a.salt)
	b.Write(text)
	chain := b.Chain()
	f.sent++
	q := &placement.Request{
		ModelUID: uid, RequestID: fmt.Sprint(f.sent), Adapter: a.adapter, Key: []byte("key"), Chain: chain,
		PromptBytes: len(text), PromptTokens: uint32(len(tokens)),
	}
	t, err := f.boards[board].Place(q, epoch)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &call{board: board, ticket: t, expected: t.Decision().Chosen.Cached}
	c.worker = slices.Index(f.pods, t.Worker().Pod)
	c.request = &engine.Request{
		ID: q.RequestID, Prompt: engine.Prompt{Tokens: tokens}, MaxTokens: 2, CacheSalt: a.salt, Adapter: a.adapter,
	}
	if len(chain) > 0 {
		c.request.Name = engine.PromptName{Hash: chain[len(chain)-1], Blocks: uint32(len(chain)), Bytes: uint64(len(text))}
	}
	switch rapid.IntRange(0, 7).Draw(f.t, "kind") {
	case 0:
		c.request.Choices = 2
	case 1:
		c.request.Resume = &engine.Resume{Tokens: []engine.Token{'o'}}
	case 2:
		c.request.Resume = &engine.Resume{Tokens: []engine.Token{'o', 'k'}} // nothing is left to be made
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
}

// answered tells the router that the worker has taken the request.
func (f *fleet) answered(c *call) {
	c.ticket.Numbered(c.stream.(engine.Numbered).PromptNumber())
	c.ticket.Accepted(uint32(c.stream.PromptTokens()), epoch)
}

// finish reads the answer, and returns what the worker had of the prompt.
func (f *fleet) finish(c *call) (cached int) {
	for first := true; ; {
		chunk, err := c.stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.t.Fatal(err)
		}
		if chunk.Finish != "" && first {
			first = false
			cached = chunk.Usage.Cached
		}
	}
	c.ticket.Ended(placement.Result{
		Answered: true, PromptTokens: uint32(len(c.request.Prompt.Tokens)), CachedTokens: uint32(cached), CompletionTokens: 2,
	}, epoch)
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

// crowd places some requests before any of them is answered, and lets what comes of them and reports happen in any order.
func (f *fleet) crowd(exact bool) {
	fates := []string{"answered", "answered", "answered", "lost on the way", "refused", "cancelled"}
	if !exact {
		fates = append(fates, "answer lost") // the worker has more than the router knows
	}
	var ways [][]func()
	for range rapid.IntRange(1, 5).Draw(f.t, "requests") {
		c := f.place(f.board(), f.prompt())
		ways = append(ways, f.way(c, rapid.SampledFrom(fates).Draw(f.t, "what comes of it")))
	}
	for len(ways) > 0 {
		i := rapid.IntRange(0, len(ways)-1).Draw(f.t, "request")
		ways[i][0]()
		if ways[i] = ways[i][1:]; len(ways[i]) == 0 {
			ways = slices.Delete(ways, i, i+1)
		}
		if rapid.Bool().Draw(f.t, "quiet") {
			for worker := range f.engines {
				f.quiet(worker)
			}
		}
		if rapid.Bool().Draw(f.t, "report") {
			f.report(f.board(), f.worker())
		}
	}
}

// way is what happens to a request, one after the other.
func (f *fleet) way(c *call, what string) []func() {
	begin, answered := func() { f.begin(c) }, func() { f.answered(c) }
	fails := func() { c.ticket.Ended(placement.Result{}, epoch) }
	closes := func() {
		if err := c.stream.Close(); err != nil {
			f.t.Fatal(err)
		}
	}
	switch what {
	case "answered":
		return []func(){begin, answered, func() { f.finish(c) }}
	case "cancelled":
		return []func(){begin, answered, closes, fails}
	case "answer lost":
		return []func(){begin, closes, fails}
	case "refused":
		return []func(){func() {
			c.request.Resume, c.request.MaxTokens = nil, 1<<20
			if _, err := f.engines[c.worker].Generate(context.Background(), c.request); err == nil {
				f.t.Fatal("a worker took a request that is too long")
			}
		}, fails}
	}
	return []func(){fails}
}

// play lets things happen, and compares. Where it is to be exact, nothing is missed.
func play(f *fleet, exact bool, compare func(c *call, cached int)) {
	defer f.close()
	for range 40 {
		switch rapid.IntRange(0, 9).Draw(f.t, "what") {
		case 0, 1, 2:
			f.crowd(exact)
		case 3:
			f.report(f.board(), f.worker())
		case 4:
			f.heard[f.board()][f.worker()] = 0 // a stream begins anew
		case 5:
			if !exact {
				f.miss(f.board(), f.worker())
			}
		case 6:
			if rapid.IntRange(0, 3).Draw(f.t, "another adapter") == 0 {
				f.load(f.worker())
			}
		default:
			for worker := range f.engines {
				f.quiet(worker)
			}
			f.reportAll()
			c := f.place(f.board(), f.prompt())
			if c.request.Made() == 2 {
				c.request.Resume = nil // else it finds nothing
			}
			f.begin(c)
			f.answered(c)
			compare(c, f.finish(c))
		}
	}
}

func TestARouterExpectsOfAWorkersCacheWhatTheWorkerThenFinds(t *testing.T) {
	hits, lost := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		play(newFleet(t, 2, 1, even), true, func(c *call, cached int) {
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

// TestWhereTokensAreUnevenARouterExpectsTheTextThatIsThere, but for what is less than a block of the cache.
func TestWhereTokensAreUnevenARouterExpectsTheTextThatIsThere(t *testing.T) {
	const slack = (15*7 + 63) / 64
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, 2, 1, uneven)
		play(f, true, func(c *call, cached int) {
			q := c.request.Prompt.Tokens
			expected := int(math.Round(float64(c.expected) * float64(len(f.tongue.text(q))) / float64(len(q)) / 64))
			if there := len(f.tongue.text(q[:cached])) / 64; expected < there-1 || expected > there+slack {
				t.Fatalf("request %s: the router expected %d blocks, the worker had %d tokens of %d, which are %d", c.request.ID, expected, cached, len(q), there)
			}
		})
	})
}

// TestOfSeveralRoutersNoneExpectsMoreThanTheWorkerHas: of what other routers have sent, and of what it has missed, each knows less.
func TestOfSeveralRoutersNoneExpectsMoreThanTheWorkerHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		play(newFleet(t, 2, 3, even), false, func(c *call, cached int) {
			if c.expected > cached {
				t.Fatalf("request %s: router %d expected %d of %d tokens, the worker had %d", c.request.ID, c.board, c.expected, len(c.request.Prompt.Tokens), cached)
			}
		})
	})
}
