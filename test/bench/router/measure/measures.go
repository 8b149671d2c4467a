package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/test/bench/router/load"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// The numbers of the loads.
const (
	rate        = 1000 // requests a second, over connections
	connections = 64
	closed      = 32 // connections of the closed loop
	small       = 200
	streams     = 200
	tokens      = 100
	perSecond   = 50
	openStreams = 8000
	seconds     = 5
	short       = 3
)

// Goals, and whose figures they are beside.
const (
	goalCPU    = 110 // µs a request
	goalPrompt = 800 // µs a request of 220 KB
	goalTokens = 30_000
	goalStream = 64 // KiB
)

// Second goals stand in rows of their own beside the first, with their names and this. They are what the best of the peers
// does; of the latency and the CPU of a request that is Envoy's.
const (
	second       = ", second goal"
	secondPrompt = 400 // µs
	secondTokens = 50_000
	secondStream = 20 // KiB
)

// over is the row that holds Ringfleet's figure to a peer's: to vLLM's router, and to Envoy's as the second goal.
func over(what, peer string, ratio pairs.Series) pairs.Row {
	name := what + ", ringfleet over " + peer
	switch peer {
	case install.Envoy:
		return pairs.AtMost(name+second, ratio, "×", 1)
	case install.VLLMRouter:
		return pairs.AtMost(name, ratio, "×", 1)
	}
	return pairs.Plain(name, ratio, "×")
}

// measure is one group of figures.
type measure struct {
	name  string
	plan  mock.Plan
	turns int // 0: as many as asked for
	turn  func(r *Rig, ctx context.Context, s *Side, v values) error
	rows  func(v values, sides []string) []pairs.Row
}

// values are what was seen, by side and quantity.
type values map[string]pairs.Series

func (v values) add(side, what string, x float64)  { v[side+" "+what] = append(v[side+" "+what], x) }
func (v values) of(side, what string) pairs.Series { return v[side+" "+what] }

var beat = mock.Plan{Tokens: tokens, Interval: time.Second / perSecond}

// measures are all there are.
var measures = []measure{
	{name: "latency", plan: beat, turn: (*Rig).latency, rows: latencyRows},
	{name: "cpu", plan: beat, turn: (*Rig).busy, rows: busyRows},
	{name: "prompts", plan: beat, turn: (*Rig).prompts, rows: promptRows},
	{name: "streams", plan: beat, turn: (*Rig).streams, rows: streamRows},
	{name: "open", plan: mock.Plan{Tokens: 2, Interval: time.Second, Silence: time.Hour}, turns: 1, turn: (*Rig).open, rows: openRows},
}

// Names are the names of all measures.
func Names() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return append(names, Ring, Decision)
}

// Run takes the measures with these names, or all, each in turns. The rows of those before an error come with it.
func (r *Rig) Run(ctx context.Context, turns int, names []string) ([]pairs.Row, error) {
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("measure %q: there are %s", n, strings.Join(Names(), ", "))
		}
	}
	var rows []pairs.Row
	began := time.Now()
	for _, m := range measures {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		load, err := process.Load()
		if err != nil {
			return rows, err
		}
		n := turns
		if m.turns > 0 {
			n = m.turns
		}
		more, err := r.take(ctx, m, n, began)
		for i := range more {
			more[i].Load = load
		}
		if rows = append(rows, more...); err != nil {
			return rows, fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	for _, m := range alone {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		more, err := r.alone(ctx, m)
		if rows = append(rows, more...); err != nil {
			return rows, fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	return rows, nil
}

// take starts everything, and lets the sides take turns, the first one another each time.
func (r *Rig) take(ctx context.Context, m measure, turns int, began time.Time) (_ []pairs.Row, err error) {
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx, m.plan); err != nil {
		return nil, err
	}
	v := values{}
	for i := range turns {
		for k := range r.Sides {
			s := r.Sides[(i+k)%len(r.Sides)]
			if err := m.turn(r, ctx, s, v); err != nil {
				return m.rows(v, r.names()), fmt.Errorf("turn %d of %d, %s: %w", i+1, turns, s.Name, err)
			}
		}
		fmt.Fprintf(r.Out, "%s passed: %s, turn %d of %d\n", time.Since(began).Round(time.Second), m.name, i+1, turns)
	}
	return m.rows(v, r.names()), nil
}

func (r *Rig) names() []string {
	var names []string
	for _, s := range r.Sides {
		names = append(names, s.Name)
	}
	return names
}

// fine fails where a load had failures: figures of errors say nothing.
func fine(failed int, why string) error {
	if failed > 0 {
		return fmt.Errorf("%d requests failed, one of them: %s", failed, why)
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// latency asks at a fixed rate.
func (r *Rig) latency(ctx context.Context, s *Side, v values) error {
	var t load.Times
	u, err := r.ask(ctx, s, Asked{Kind: Open, Count: connections, Rate: rate, For: seconds, Prompt: small}, &t)
	if err = errors.Join(err, fine(t.Failed, t.Error)); err != nil {
		return err
	}
	v.add(s.Name, "p50", t.P50)
	v.add(s.Name, "p99", t.P99)
	v.add(s.Name, "cpu", micros(u.cpu)/float64(t.Requests))
	return nil
}

func minus(a, b pairs.Series) pairs.Series {
	var out pairs.Series
	for i := range min(len(a), len(b)) {
		out = append(out, a[i]-b[i])
	}
	return out
}

func latencyRows(v values, sides []string) []pairs.Row {
	rows := []pairs.Row{
		pairs.Plain("direct, p50 at 1,000 requests/s", v.of(Direct, "p50"), "µs"),
		pairs.Plain("direct, p99 at 1,000 requests/s", v.of(Direct, "p99"), "µs"),
	}
	own := minus(v.of(Ours, "p50"), v.of(Direct, "p50"))
	for _, s := range sides[1:] {
		added := minus(v.of(s, "p50"), v.of(Direct, "p50"))
		rows = append(rows, pairs.Plain("added p50 at 1,000 requests/s, "+s, added, "µs"),
			pairs.Plain("added p99 at 1,000 requests/s, "+s, minus(v.of(s, "p99"), v.of(Direct, "p99")), "µs"),
			pairs.Plain("CPU per request at 1,000 requests/s, "+s, v.of(s, "cpu"), "µs"))
		if s != Ours {
			rows = append(rows, over("added p50 at 1,000 requests/s", s, pairs.Over(own, added)))
		}
	}
	return rows
}

// busy asks as fast as the side can answer.
func (r *Rig) busy(ctx context.Context, s *Side, v values) error {
	var t load.Times
	u, err := r.ask(ctx, s, Asked{Kind: Closed, Count: closed, For: short, Prompt: small}, &t)
	if err = errors.Join(err, fine(t.Failed, t.Error)); err != nil {
		return err
	}
	v.add(s.Name, "cpu", micros(u.cpu)/float64(t.Requests))
	v.add(s.Name, "rate", float64(t.Requests)/t.Seconds)
	return nil
}

func busyRows(v values, sides []string) []pairs.Row {
	rows := []pairs.Row{pairs.Plain("requests per second over 32 connections, direct", v.of(Direct, "rate"), "1/s")}
	for _, s := range sides[1:] {
		name := "CPU per request over 32 connections, " + s
		if s == Ours {
			rows = append(rows, pairs.AtMost(name, v.of(s, "cpu"), "µs", goalCPU))
		} else {
			rows = append(rows, pairs.Plain(name, v.of(s, "cpu"), "µs"),
				over("CPU per request over 32 connections", s, pairs.Over(v.of(Ours, "cpu"), v.of(s, "cpu"))))
		}
		rows = append(rows, pairs.Plain("requests per second over 32 connections, "+s, v.of(s, "rate"), "1/s"))
	}
	return rows
}

// kilobytes are the sizes of long prompts.
var kilobytes = []int{10, 100, 220}

// prompts asks with long ones.
func (r *Rig) prompts(ctx context.Context, s *Side, v values) error {
	for _, kb := range kilobytes {
		var t load.Times
		u, err := r.ask(ctx, s, Asked{Kind: Closed, Count: 4, For: short, Prompt: kb * 1000}, &t)
		if err = errors.Join(err, fine(t.Failed, t.Error)); err != nil {
			return err
		}
		v.add(s.Name, fmt.Sprint(kb), micros(u.cpu)/float64(t.Requests))
	}
	return nil
}

func promptRows(v values, sides []string) (rows []pairs.Row) {
	for _, kb := range kilobytes {
		for _, s := range sides[1:] {
			name, cpu := fmt.Sprintf("CPU for a prompt of %d KB, %s", kb, s), v.of(s, fmt.Sprint(kb))
			if s == Ours && kb == kilobytes[len(kilobytes)-1] {
				rows = append(rows, pairs.AtMost(name, cpu, "µs", goalPrompt), pairs.AtMost(name+second, cpu, "µs", secondPrompt))
			} else {
				rows = append(rows, pairs.Plain(name, cpu, "µs"))
			}
		}
	}
	return rows
}

// streams holds streams with tokens at a fixed rate.
func (r *Rig) streams(ctx context.Context, s *Side, v values) error {
	var t load.Stream
	u, err := r.ask(ctx, s, Asked{Kind: Streams, Count: streams, For: seconds, Stream: true, Prompt: small}, &t)
	if err = errors.Join(err, fine(t.Failed, t.Error)); err != nil {
		return err
	}
	if t.Tokens == 0 {
		return errors.New("no token came")
	}
	v.add(s.Name, "gap", t.GapP99)
	if s.process != nil {
		v.add(s.Name, "tokens", float64(t.Tokens)/u.cpu.Seconds())
		v.add(s.Name, "cpu", micros(u.cpu)/float64(t.Tokens))
	}
	return nil
}

func streamRows(v values, sides []string) []pairs.Row {
	rows := []pairs.Row{pairs.Plain("p99 from token to token, 200 streams of 50 tokens/s, direct", v.of(Direct, "gap"), "µs")}
	for _, s := range sides[1:] {
		name := "streamed tokens per second and core, " + s
		if s == Ours {
			rows = append(rows, pairs.AtLeast(name, v.of(s, "tokens"), "1/s", goalTokens), pairs.AtLeast(name+second, v.of(s, "tokens"), "1/s", secondTokens))
		} else {
			rows = append(rows, pairs.Plain(name, v.of(s, "tokens"), "1/s"))
		}
		rows = append(rows, pairs.Plain("CPU per streamed token, "+s, v.of(s, "cpu"), "µs"),
			pairs.Plain("added p99 from token to token, "+s, minus(v.of(s, "gap"), v.of(Direct, "gap")), "µs"))
	}
	return rows
}

// open holds many silent streams, and looks at the memory before and with them.
func (r *Rig) open(ctx context.Context, s *Side, v values) error {
	if s.process == nil {
		return nil
	}
	before, err := memory(s.process.PID())
	if err != nil {
		return err
	}
	text, err := json.Marshal(Asked{Kind: Hold, Count: openStreams, Stream: true, Prompt: small, Address: s.address})
	if err != nil {
		return err
	}
	line := make(chan string, 1)
	p, err := process.Start(ctx, process.Spec{Path: r.Program, Args: []string{RoleLoad, string(text)}, Line: func(l string) {
		select {
		case line <- l:
		default:
		}
	}})
	if err != nil {
		return err
	}
	defer p.Stop()
	var t load.Stream
	select {
	case l := <-line:
		if err := json.Unmarshal([]byte(l), &t); err != nil {
			return fmt.Errorf("read what the load printed: %w", err)
		}
	case <-p.Ended():
		return p.Lost()
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.Failed > 0 || t.Streams == 0 {
		return fmt.Errorf("%d of %d streams failed, one of them: %s", t.Failed, openStreams, t.Error)
	}
	after, err := memory(s.process.PID())
	if err != nil {
		return err
	}
	v.add(s.Name, "memory", (after-before)/float64(t.Streams)/1024)
	return nil
}

func openRows(v values, sides []string) (rows []pairs.Row) {
	for _, s := range sides[1:] {
		name := "memory per open stream, 8,000 open, " + s
		if s == Ours {
			rows = append(rows, pairs.AtMost(name, v.of(s, "memory"), "KiB", goalStream), pairs.AtMost(name+second, v.of(s, "memory"), "KiB", secondStream))
		} else {
			rows = append(rows, pairs.Plain(name, v.of(s, "memory"), "KiB"))
		}
	}
	return rows
}
