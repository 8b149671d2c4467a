package server

import (
	"reflect"
	"strings"
	"testing"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/router/openai"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
)

func TestThePromptsOfAReportArePlacements(t *testing.T) {
	many := make([]*workerv1.Prefix, mostPrompts+1)
	for i := range many {
		many[i] = &workerv1.Prefix{Hash: uint64(i), Blocks: 1}
	}
	for name, c := range map[string]struct {
		said []*workerv1.Prefix
		want []placement.Prompt
	}{
		"none":                    {nil, nil},
		"in their order":          {[]*workerv1.Prefix{{Hash: 7, Blocks: 3}, {Hash: 5, Blocks: 1}}, []placement.Prompt{{Hash: 7, Blocks: 3}, {Hash: 5, Blocks: 1}}},
		"one without blocks":      {[]*workerv1.Prefix{{Hash: 7}, {Hash: 5, Blocks: 1}}, []placement.Prompt{{Hash: 5, Blocks: 1}}},
		"longer than any chain":   {[]*workerv1.Prefix{{Hash: 7, Blocks: 1 << 31}}, []placement.Prompt{{Hash: 7, Blocks: prefix.MaxBlocks}}},
		"one that is not even so": {[]*workerv1.Prefix{nil}, []placement.Prompt{}},
	} {
		if got := loadOf(&workerv1.Report{Prefixes: c.said}).Prompts; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	states := loadOf(&workerv1.Report{
		Prefixes: []*workerv1.Prefix{{Hash: 7, Blocks: 3, Number: 2}, {Hash: 8, Blocks: 3, Number: 5}},
		PrefixStates: []*workerv1.PrefixState{
			{Hash: 4, Blocks: 3, HeldBlocks: 1, Number: 1}, {Hash: 5, Blocks: 1, HeldBlocks: 9, Number: 3, Heir: 6}, {Hash: 6, Blocks: 1, Number: 4}, {Hash: 9, Blocks: 1}, nil,
		},
	}).Prompts
	want := []placement.Prompt{
		{Hash: 4, Blocks: 3, Lost: 2, Number: 1, Left: true}, {Hash: 7, Blocks: 3, Number: 2}, {Hash: 5, Blocks: 1, Number: 3, Left: true, Heir: 6},
		{Hash: 6, Blocks: 1, Lost: 1, Number: 4, Left: true}, {Hash: 8, Blocks: 3, Number: 5},
	}
	if !reflect.DeepEqual(states, want) {
		t.Errorf("with what is held of them: %v, want %v", states, want)
	}
	if got := loadOf(&workerv1.Report{PrefixesMissed: 7}).Missed; got != 7 {
		t.Errorf("missed are those up to %d", got)
	}
	if loadOf(&workerv1.Report{}).Exact || !loadOf(&workerv1.Report{PrefixesExact: true}).Exact {
		t.Error("whether a report is exact is not what it says")
	}
	if got := loadOf(&workerv1.Report{Prefixes: many}).Prompts; len(got) != mostPrompts || got[0].Hash != 1 {
		t.Errorf("of too many %d are left, from %v on", len(got), got[0])
	}
}

// long is a request with a prompt of many blocks.
var long = `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a conversation of some length. ", 100) + `"}],"max_tokens":1}`

// longChain is what routers know it by.
func longChain(t *testing.T) prefix.Chain {
	t.Helper()
	q, err := openai.ParseChat([]byte(long))
	if err != nil {
		t.Fatal(err)
	}
	return chain(&gateway.Call{ModelUID: "uid-m", Chat: q})
}

func TestAWorkerIsToldWhatItsRouterKnowsAPromptBy(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	r.ready()
	resp, err := r.chat(long)
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}
	c := longChain(t)
	for _, q := range append(r.workers[0].seen(), r.workers[1].seen()...) {
		if q.GetPrefixHash() != c[len(c)-1] || int(q.GetPrefixBlocks()) != len(c) {
			t.Errorf("the worker is told %x of %d blocks, want %x of %d", q.GetPrefixHash(), q.GetPrefixBlocks(), c[len(c)-1], len(c))
		}
	}
}

func TestRequestsFollowOneAnotherOnAStreamWhereAWorkerReportsThatItTakesThat(t *testing.T) {
	const requests = 6
	for name, single := range map[string]bool{"it does": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(*Options) {})
			for _, w := range r.workers {
				w.single.Store(single)
			}
			close(r.answer)
			r.ready()
			for range requests {
				resp, err := r.chat(ask)
				if err != nil {
					t.Fatal(err)
				}
				if got := body(t, resp); resp.StatusCode != 200 {
					t.Fatalf("%d %s", resp.StatusCode, got)
				}
			}
			ran, streams := 0, 0
			for _, w := range r.workers {
				ran += len(w.seen())
				streams += int(w.streams.Load())
			}
			if least, most := 1, len(r.workers); single && streams != 0 || !single && (streams < least || streams > most) || ran != requests {
				t.Errorf("%d requests took %d streams", ran, streams)
			}
		})
	}
}

func TestAPromptThatAnotherRouterSentIsThoughtToBeWhereAReportNamesIt(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	c := longChain(t)
	cached := func() int {
		t.Helper()
		ticket, err := r.fleet.board.Place(&placement.Request{
			ModelUID: "uid-m", RequestID: "q", Key: []byte("k"), Chain: c, PromptBytes: len(long), Exclude: []placement.Process{{Pod: "w-0"}},
		}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return ticket.Decision().Chosen.Cached
	}
	m := heartbeat.Member{Candidate: heartbeat.Candidate{Pod: "w-1", ModelUID: "uid-m"}, Instance: "w-1-a"}
	r.fleet.report(m, &workerv1.Report{ModelLoaded: true, Prefixes: []*workerv1.Prefix{{Hash: c[9], Blocks: 10}}}, time.Now())
	if got, want := cached(), 10*prefix.BlockBytes/4; got != want {
		t.Errorf("%d tokens of the prompt are thought to be there, want %d", got, want)
	}
}
