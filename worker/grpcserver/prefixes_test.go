package grpcserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// named is a request whose prompt has a name.
func named(hash uint64, blocks uint32) *workerv1.GenerateRequest {
	return chat(func(q *workerv1.GenerateRequest) { q.PrefixHash, q.PrefixBlocks = hash, blocks })
}

// hashes are those of prompts with as many blocks as their hash says.
func hashes(t *testing.T, list []*workerv1.Prefix) []uint64 {
	t.Helper()
	var out []uint64
	for _, p := range list {
		if p.GetHash() != uint64(p.GetBlocks()) {
			t.Errorf("prompt %d has %d blocks", p.GetHash(), p.GetBlocks())
		}
		out = append(out, p.GetHash())
	}
	return out
}

func upTo(from, to uint64) []uint64 {
	var out []uint64
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

func TestEachStreamHearsOfEachPromptOnce(t *testing.T) {
	var p prefixes
	accept := func(list ...uint64) {
		for _, n := range list {
			p.accept("i1", named(n, uint32(n)))
		}
	}
	var early, late uint64
	for _, step := range []struct {
		what   string
		accept []uint64
		stream *uint64
		want   []uint64
	}{
		{"nothing yet", nil, &early, nil},
		{"two", []uint64{1, 2}, &early, []uint64{1, 2}},
		{"and nothing since", nil, &early, nil},
		{"another stream, which begins with all", []uint64{3}, &late, []uint64{1, 2, 3}},
		{"the first one, which lacks one", nil, &early, []uint64{3}},
		{"the same prompt again", []uint64{3}, &early, []uint64{3}},
		{"more than are remembered", upTo(4, 3000), &early, upTo(3000-mostPrefixes+1, 3000)},
		{"the other one after as many", nil, &late, upTo(3000-mostPrefixes+1, 3000)},
		{"as many as are remembered", upTo(3001, 3000+mostPrefixes), &early, upTo(3001, 3000+mostPrefixes)},
	} {
		accept(step.accept...)
		list, next := p.since("i1", *step.stream)
		*step.stream = next
		if got := hashes(t, list); !slices.Equal(got, step.want) {
			t.Errorf("%s: %d of them, %v; want %d", step.what, len(got), got, len(step.want))
		}
	}
}

func TestAnInstanceHasNothingOfTheOneBefore(t *testing.T) {
	var p prefixes
	p.accept("i1", named(1, 1))
	_, next := p.since("i1", 0)
	p.accept("i1", named(2, 2))
	list, next := p.since("i2", next)
	if len(list) > 0 {
		t.Errorf("the next instance names %v", list)
	}
	p.accept("i2", named(3, 3))
	for what, from := range map[string]uint64{"a stream that was there": next, "a stream that begins": 0} {
		if list, _ := p.since("i2", from); !slices.Equal(hashes(t, list), []uint64{3}) {
			t.Errorf("%s hears of %v", what, list)
		}
	}
}

func TestAPromptThatIsAcceptedWhileReportsAreMadeIsNamedOnce(t *testing.T) {
	const callers, each = 8, 100 // fewer than are remembered
	var p prefixes
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := range each {
				n := 1 + c*each + i
				p.accept("i1", named(uint64(n), uint32(n)))
			}
		})
	}
	heard := make([][]uint64, 2)
	for i := range heard {
		group.Go(func() {
			for from := uint64(0); len(heard[i]) < callers*each; {
				var list []*workerv1.Prefix
				list, from = p.since("i1", from)
				for _, x := range list {
					heard[i] = append(heard[i], x.GetHash())
				}
			}
		})
	}
	group.Wait()
	for i, got := range heard {
		if slices.Sort(got); !slices.Equal(got, upTo(1, callers*each)) {
			t.Errorf("stream %d has heard of %v", i, got)
		}
	}
}

// first is the first report of a stream.
func first(t *testing.T, r *rig) *workerv1.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	stream, err := r.router().Watch(ctx, &workerv1.WatchRequest{IntervalMilliseconds: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAReportNamesPromptsOfAcceptedRequestsAndHasNothingOfTheirText(t *testing.T) {
	r := newRig(t, sim.Options{Text: "a reply"})
	c := r.router()
	wrong := named(3, 3)
	wrong.ExpectedInstanceId = "i0"
	for _, q := range []*workerv1.GenerateRequest{named(1, 1), chat(nil), named(9, 0), wrong, named(2, 2)} {
		generate(within(t), c, q)
	}
	m := first(t, r)
	for _, p := range m.GetPrefixStates() {
		m.Prefixes = append(m.Prefixes, &workerv1.Prefix{Hash: p.GetHash(), Blocks: p.GetBlocks(), Number: p.GetNumber()})
	}
	if got := hashes(t, m.GetPrefixes()); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("it names %v, want those that were accepted and have a name", got)
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{secret, "a reply"} {
		if bytes.Contains(wire, []byte(text)) {
			t.Errorf("%q is in the report", text)
		}
	}
	if size := proto.Size(m.GetPrefixes()[0]); size > 16 {
		t.Errorf("a prompt takes %d bytes of a report", size)
	}
}

func TestReportsOfAnEngineThatFollowsPromptsSayWhatIsHeld(t *testing.T) {
	r := newRig(t, sim.Options{Text: "a reply"})
	c := r.router()
	long := func(hash uint64, text string) *workerv1.GenerateRequest {
		return &workerv1.GenerateRequest{
			Prompt:   &workerv1.GenerateRequest_Text{Text: &workerv1.TextPrompt{Text: strings.Repeat(text, 200)}},
			Sampling: &workerv1.Sampling{Temperature: new(0.)}, MaxTokens: 3,
			PrefixHash: hash, PrefixBlocks: 3, PrefixBytes: 200,
		}
	}
	var numbers []uint64
	for i, text := range []string{"a", "b", "c"} { // of two sequences one is kept
		stream, err := c.Generate(within(t), long(uint64(i+1), text))
		if err != nil {
			t.Fatal(err)
		}
		for m, err := stream.Recv(); !errors.Is(err, io.EOF); m, err = stream.Recv() {
			if err != nil {
				t.Fatal(err)
			}
			if a := m.GetAccepted(); a != nil {
				numbers = append(numbers, a.GetPrefixNumber())
			}
		}
	}
	m := first(t, r)
	if !m.GetPrefixesExact() {
		t.Error("the report does not say that it is exact")
	}
	last := uint64(0)
	for _, p := range m.GetPrefixStates() {
		if p.GetNumber() <= last {
			t.Errorf("number %d comes after %d", p.GetNumber(), last)
		}
		last = p.GetNumber()
		if p.GetHeldBlocks() > p.GetBlocks() || (p.GetHeldBlocks() == p.GetBlocks()) != (p.GetHash() == 3) {
			t.Errorf("of prompt %d %d blocks of %d are held", p.GetHash(), p.GetHeldBlocks(), p.GetBlocks())
		}
	}
	if len(m.GetPrefixStates()) != 3 || len(m.GetPrefixes()) > 0 || len(numbers) != 3 || !slices.IsSorted(numbers) || numbers[0] == 0 {
		t.Errorf("%d prompts are told of, %d named, and accepted with numbers %v", len(m.GetPrefixStates()), len(m.GetPrefixes()), numbers)
	}
}

func TestAStreamsNextReportNamesWhatCameSince(t *testing.T) {
	w := startWatch(t)
	next := func() []uint64 {
		w.engine.run(1 - w.engine.stats.Running) // a jump
		w.look()
		<-w.engine.looked
		return hashes(t, (<-w.sent).GetPrefixes())
	}
	w.prefixes.accept("i1", named(1, 1))
	if got := next(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("it names %v", got)
	}
	w.prefixes.accept("i1", named(2, 2))
	w.prefixes.accept("i1", named(3, 3))
	if got := next(); !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("then %v", got)
	}
	if got := next(); got != nil {
		t.Errorf("then %v, though nothing has come", got)
	}
}

// BenchmarkReportOfManyPrompts is a first report's part for prompts, as long as it gets.
func BenchmarkReportOfManyPrompts(b *testing.B) {
	var p prefixes
	for n := range uint64(mostPrefixes) {
		p.accept("i1", named(n, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		p.since("i1", 0)
	}
}

// teller is an engine with so many prompts to tell of.
type teller struct {
	*loaded
	prompts int
}

func (e teller) Prompts(from uint64, most int) (news []engine.PromptNews, next, missed uint64) {
	for n := max(from, 1); n <= uint64(e.prompts) && len(news) < most; n++ {
		news = append(news, engine.PromptNews{Hash: n, Blocks: 1, Held: 1, Number: n})
		from = n + 1
	}
	return news, from, 7
}

func TestWhatHasNoRoomInAReportIsToldAtOnce(t *testing.T) {
	w := startWatch(t)
	w.worker.set(func(s *Status) { s.Engine = teller{w.engine, 2*mostPrefixes + 5} })
	for i, want := range []int{mostPrefixes, mostPrefixes, 5} { // while no time passes
		<-w.engine.looked
		r := <-w.sent
		if got := r.GetPrefixStates(); len(got) != want || got[0].GetNumber() != uint64(i*mostPrefixes+1) || r.GetPrefixesMissed() != 7 {
			t.Errorf("report %d tells of %d prompts from number %d on, missed are those up to %d", i, len(got), got[0].GetNumber(), r.GetPrefixesMissed())
		}
	}
}
