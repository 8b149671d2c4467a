package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// TestStep runs the transcripts of testdata/step. Rewrite them with -rewrite.
//
//	limits sequences= waiting= step= blocks= context=
//	arrive NAME prompt=TOKENS [max=TOKENS] [stop=STRING]
//	cancel NAME
//	steps N              N steps, of which the last is shown
//	step [NAME=TEXT …]   next and apply; a request that samples gets its TEXT's next byte, . when none is given, $ ends
func TestStep(t *testing.T) {
	datadriven.Walk(t, "testdata/step", func(t *testing.T, path string) {
		x := &transcript{}
		datadriven.RunTest(t, path, x.run)
	})
}

type transcript struct {
	state    *state
	requests map[string]*request
}

func (x *transcript) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "limits":
		var l limits
		d.ScanArgs(t, "sequences", &l.sequences)
		d.ScanArgs(t, "waiting", &l.waiting)
		d.ScanArgs(t, "step", &l.stepTokens)
		d.ScanArgs(t, "blocks", &l.blocks)
		d.ScanArgs(t, "context", &l.context)
		x.state, x.requests = newState(l, sim.Vocabulary{}), map[string]*request{}
		return ""
	case "arrive":
		return x.arrive(t, d)
	case "cancel":
		x.state.end(x.requests[d.CmdArgs[0].Key])
		return x.books()
	case "step":
		return x.step(d)
	case "steps":
		n, err := strconv.Atoi(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		for ; n > 1; n-- {
			x.step(&datadriven.TestData{})
		}
		return x.step(&datadriven.TestData{})
	}
	t.Fatalf("%s: no such command %q", d.Pos, d.Cmd)
	return ""
}

func (x *transcript) arrive(t *testing.T, d *datadriven.TestData) string {
	var prompt, most int
	d.ScanArgs(t, "prompt", &prompt)
	if d.HasArg("max") {
		d.ScanArgs(t, "max", &most)
	}
	r := &request{id: d.CmdArgs[0].Key, prompt: make([]engine.Token, prompt)}
	if d.HasArg("stop") {
		var stop string
		d.ScanArgs(t, "stop", &stop)
		r.text.stops = []string{stop}
	}
	var err error
	if r.grant, err = x.state.limits.judge(prompt, most); err == nil {
		err = x.state.arrive(r)
	}
	if err != nil {
		return err.Error()
	}
	x.requests[r.id] = r
	return fmt.Sprintf("%s may make %d tokens and books %d blocks\n%s", r.id, r.grant.limit, blocksFor(r.grant.reserve), x.books())
}

func (x *transcript) step(d *datadriven.TestData) string {
	give := map[string]string{}
	for _, a := range d.CmdArgs {
		give[a.Key] = a.Vals[0]
	}
	var b strings.Builder
	p := x.state.next()
	for _, op := range p.batch.KV {
		fmt.Fprintf(&b, "free sequence %d\n", op.Dst)
	}
	tokens := make([]engine.Token, len(p.requests))
	for i, r := range p.requests {
		item := p.batch.Items[i]
		fmt.Fprintf(&b, "%s: sequence %d, %d tokens at %d", r.id, item.Seq, len(item.Tokens), item.Pos)
		if item.Logits {
			tokens[i] = '.'
			if text := give[r.id]; text == "$" {
				tokens[i] = sim.End
			} else if text != "" {
				tokens[i] = engine.Token(text[0])
			}
			b.WriteString(", sampled")
		}
		b.WriteByte('\n')
	}
	for _, e := range x.state.apply(p, tokens) {
		fmt.Fprintf(&b, "-> %s %q", e.request.id, e.chunk.Text)
		if e.chunk.Finish != "" {
			fmt.Fprintf(&b, " ends: %s after %d+%d tokens", e.chunk.Finish, e.chunk.Usage.Prompt, e.chunk.Usage.Completion)
		}
		if e.full {
			b.WriteString(", the cache is full")
		}
		b.WriteByte('\n')
	}
	return b.String() + x.books()
}

// books shows who waits, who runs and what is free.
func (x *transcript) books() string {
	names := func(list []*request) string {
		var ids []string
		for _, r := range list {
			ids = append(ids, r.id)
		}
		return "[" + strings.Join(ids, " ") + "]"
	}
	return fmt.Sprintf("waiting %s running %s free blocks %d\n", names(x.state.queue), names(x.state.active), x.state.freeBlocks)
}
