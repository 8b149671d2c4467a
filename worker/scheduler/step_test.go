package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// TestStep runs the transcripts of testdata/step. Rewrite them with -rewrite. Every batch runs on a simulated device, which
// refuses what a real one would choke on.
//
//	limits sequences= waiting= step= blocks= context= [age=STEPS] [ids=SEQUENCES OF THE DEVICE] [idle=CHAINS]
//	arrive NAME prompt=TOKENS [made=TEXT] [max=TOKENS] [min=TOKENS] [n=CHOICES] [stop=STRING] [priority=] [salt=] [adapter=]
//	        20 is 20 tokens that no other request has; s32+a4 is 32 tokens "s" and 4 tokens "a"; made is what another
//	        engine has made, a token for each byte, $ being the one that ends
//	cancel NAME
//	steps N              N steps, of which the last is shown
//	step [NAME=TEXT …]   begin and end
//	begin                forms a step and shows it
//	end [NAME=TEXT …]    books it; a request that samples gets its TEXT's next byte, . when none is given, $ ends.
//	        Choices are NAME.0, NAME.1, …
//	abort                books it as broken off
func TestStep(t *testing.T) {
	datadriven.Walk(t, "testdata/step", func(t *testing.T, path string) {
		x := &transcript{}
		datadriven.RunTest(t, path, x.run)
	})
}

type transcript struct {
	state    *state
	device   engine.Executor
	requests map[string]*request
	plan     *plan
}

func (x *transcript) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "limits":
		return x.limits(t, d)
	case "arrive":
		return x.arrive(t, d)
	case "cancel":
		x.state.end(x.requests[d.CmdArgs[0].Key])
		out := x.books()
		if x.plan != nil && x.plan.worthless() {
			out = "the step is not worth its time any more\n" + out
		}
		return out
	case "begin":
		return x.begin(t)
	case "end":
		return x.end(d)
	case "abort":
		x.state.aborted(x.plan)
		x.plan = nil
		return x.books()
	case "step":
		return x.begin(t) + x.end(d)
	case "steps":
		n, err := strconv.Atoi(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		for ; n > 1; n-- {
			x.begin(t)
			x.end(&datadriven.TestData{})
		}
		return x.begin(t) + x.end(&datadriven.TestData{})
	}
	t.Fatalf("%s: no such command %q", d.Pos, d.Cmd)
	return ""
}

func (x *transcript) limits(t *testing.T, d *datadriven.TestData) string {
	l := limits{age: DefaultAgeSteps}
	d.ScanArgs(t, "sequences", &l.sequences)
	d.ScanArgs(t, "waiting", &l.waiting)
	d.ScanArgs(t, "step", &l.stepTokens)
	d.ScanArgs(t, "blocks", &l.cache.Blocks)
	d.ScanArgs(t, "context", &l.context)
	l.cache.Sequences = l.sequences
	optional(t, d, "age", &l.age)
	optional(t, d, "ids", &l.cache.Sequences)
	optional(t, d, "idle", &l.cache.MaxIdle)
	loaded := sim.New(sim.Options{ContextTokens: l.context, Sequences: l.cache.Sequences,
		KVTokens: l.cache.Blocks * kvcache.BlockTokens, Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Adapters: true})
	x.state, x.device, x.requests = newState(l, sim.Vocabulary{}), loaded.Executor, map[string]*request{}
	return ""
}

func optional(t *testing.T, d *datadriven.TestData, name string, to any) {
	if d.HasArg(name) {
		d.ScanArgs(t, name, to)
	}
}

func (x *transcript) arrive(t *testing.T, d *datadriven.TestData) string {
	var prompt, stop, name string
	q := &engine.Request{}
	d.ScanArgs(t, "prompt", &prompt)
	optional(t, d, "max", &q.MaxTokens)
	optional(t, d, "min", &q.MinTokens)
	optional(t, d, "n", &q.Choices)
	optional(t, d, "stop", &stop)
	optional(t, d, "adapter", &name)
	r := &request{id: d.CmdArgs[0].Key, adapter: x.state.adapters[name]}
	if r.adapter == nil {
		r.adapter = &adapter{name: name, key: name}
		x.state.adapters[name] = r.adapter
		if err := x.device.(engine.Adapting).LoadAdapter(engine.Adapter{Name: name, Path: name}); err != nil {
			t.Fatal(err)
		}
	}
	optional(t, d, "priority", &r.priority)
	optional(t, d, "salt", &r.salt)
	tokens := spelledPrompt(t, r.id, prompt)
	var err error
	if r.grant, err = x.state.limits.judge(len(tokens), "messages", q); err != nil {
		return err.Error()
	}
	for i := range max(1, q.Choices) {
		c := &run{request: r, choice: i, voice: voice{choice: i}}
		if stop != "" {
			c.voice.stops = []string{stop}
		}
		r.runs = append(r.runs, c)
	}
	r.runs[0].tokens = tokens
	var seen string
	if d.HasArg("made") {
		if seen, err = made(r, d.CmdArgs); err != nil {
			return err.Error()
		}
		if len(r.over) > 0 {
			return seen + x.books()
		}
	}
	if err := x.state.arrive(r); err != nil {
		return err.Error()
	}
	x.requests[r.id] = r
	return seen + x.books()
}

// made gives r what another engine has made and shows what was said there, and, where that is all, what is said here.
func made(r *request, args []datadriven.CmdArg) (string, error) {
	var tokens []engine.Token
	for _, a := range args {
		if a.Key != "made" {
			continue
		}
		for _, b := range []byte(a.Vals[0]) {
			if tokens = append(tokens, engine.Token(b)); b == '$' {
				tokens[len(tokens)-1] = sim.End
			}
		}
	}
	why, said, err := r.runs[0].replay(tokens, sim.Vocabulary{})
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("%q was said there\n", said.Text)
	if r.made = len(tokens); why != "" {
		r.over = r.runs[0].conclude(why)
		for _, c := range r.over {
			out += shown(r.runs[0], c)
		}
	}
	return out, nil
}

// shown is a chunk of a run.
func shown(r *run, c engine.Chunk) string {
	out := fmt.Sprintf("-> %s %q", r.name(), c.Text)
	if u := c.Usage; c.Finish != "" {
		out += fmt.Sprintf(" ends: %s after %d+%d tokens", c.Finish, u.Prompt, u.Completion)
		if u.Cached > 0 {
			out += fmt.Sprintf(", %d cached", u.Cached)
		}
	}
	return out + "\n"
}

// spelledPrompt returns the tokens that a transcript calls by 20 or s32+a4.
func spelledPrompt(t *testing.T, name, prompt string) []engine.Token {
	var out []engine.Token
	for part := range strings.SplitSeq(prompt, "+") {
		letter, count := name[0], part
		if part[0] < '0' || part[0] > '9' {
			letter, count = part[0], part[1:]
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			out = append(out, engine.Token(letter))
		}
	}
	return out
}

func (x *transcript) begin(t *testing.T) string {
	var b strings.Builder
	p := x.state.next()
	x.plan = p
	for _, op := range p.batch.KV {
		switch op.Kind {
		case engine.KVFork:
			fmt.Fprintf(&b, "sequence %d shares the first %d tokens of %d\n", op.Dst, op.N, op.Src)
		case engine.KVTruncate:
			fmt.Fprintf(&b, "cut sequence %d to %d tokens\n", op.Dst, op.N)
		default:
			fmt.Fprintf(&b, "free sequence %d\n", op.Dst)
		}
	}
	if p.batch.Adapter != "" {
		fmt.Fprintf(&b, "with adapter %s\n", p.batch.Adapter)
	}
	for i, r := range p.runs {
		item := p.batch.Items[i]
		fmt.Fprintf(&b, "%s: sequence %d, %d tokens at %d", r.name(), item.Seq, len(item.Tokens), item.Pos)
		if item.Logits {
			b.WriteString(", sampled")
		}
		b.WriteByte('\n')
	}
	if p.preempted > 0 {
		fmt.Fprintf(&b, "%d gave way\n", p.preempted)
	}
	if _, err := x.device.Step(context.Background(), &p.batch); err != nil {
		t.Fatalf("the device refuses the step: %v\n%s", err, b.String())
	}
	return b.String()
}

func (x *transcript) end(d *datadriven.TestData) string {
	give := map[string]string{}
	for _, a := range d.CmdArgs {
		give[a.Key] = a.Vals[0]
	}
	var b strings.Builder
	for i := range x.plan.draws {
		draw := &x.plan.draws[i]
		token := engine.Token('.')
		if text := give[draw.run.name()]; text == "$" {
			token = sim.End
		} else if text != "" {
			token = engine.Token(text[0])
		}
		draw.choice = sampling.Choice{Token: token}
	}
	for _, e := range x.state.apply(x.plan, time.Time{}, &StepRecord{}) {
		b.WriteString(shown(e.request.runs[e.chunk.Choice], e.chunk))
	}
	x.plan = nil
	return b.String() + x.books()
}

// name is how transcripts call a run.
func (r *run) name() string {
	if len(r.request.runs) == 1 {
		return r.request.id
	}
	return fmt.Sprintf("%s.%d", r.request.id, r.choice)
}

// books shows who waits, who runs and what is free.
func (x *transcript) books() string {
	names := func(list []*run) string {
		var ids []string
		for _, r := range list {
			ids = append(ids, r.name())
		}
		return "[" + strings.Join(ids, " ") + "]"
	}
	kv := x.state.cache.Stats()
	return fmt.Sprintf("waiting %s running %s; blocks: %d used, %d cached, %d free\n",
		names(x.state.queue), names(x.state.active), kv.Active, kv.Cached, kv.Free)
}
