package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// answered is a stream of n words that came to its end.
func answered(id, router string, n, start int) Client {
	c := Client{ID: id, Tenant: "t" + id[:1], Router: router, Model: "m", Stream: true, Choices: 1, Words: n, Status: 200, Completion: n,
		Start: at(start), End: at(start + 10*n + 10)}
	for i := range n {
		c.Events = append(c.Events, Event{At: at(start + 10*i), Text: Word("w", i)})
	}
	c.Events = append(c.Events, Event{At: at(start + 10*n), Finish: "length"}, Event{At: at(start + 10*n), Done: true})
	return c
}

// broken is a stream that ended by an error after n words.
func broken(id, router string, n, start int) Client {
	c := answered(id, router, n, start)
	c.Words, c.Completion, c.Code = n+5, -1, "worker_lost"
	c.Events = append(c.Events[:n], Event{At: at(start + 10*n), Error: "worker_lost"})
	return c
}

// left is a stream whose client went away after n words; the router had sent two more.
func left(id, router string, n, start int) Client {
	c := broken(id, router, n, start)
	c.Events, c.Code, c.Gone = c.Events[:n], "", true
	return c
}

// sound is a history of two routers in which nothing is wrong.
func sound() *History {
	h := &History{}
	for i := range 6 {
		router := fmt.Sprintf("r%d", i%2)
		c := answered(fmt.Sprintf("a%d", i), router, 4+i, 100*i)
		h.Clients = append(h.Clients, c)
		h.Attempts = append(h.Attempts, Attempt{ID: c.ID, Pod: "p0", Start: c.Start, End: c.End, Sent: 4 + i})
	}
	h.Clients = append(h.Clients, broken("b0", "r0", 3, 900), left("c0", "r1", 2, 950))
	h.Attempts = append(h.Attempts, Attempt{ID: "b0", Pod: "p1", Start: at(900), Sent: 3}, Attempt{ID: "c0", Pod: "p1", Start: at(950), Sent: 4, Aborted: true})
	h.Standings = []Standing{{"p0", at(-5000), false}, {"p0", at(-2000), true}, {"p1", at(-2000), true}, {"p1", at(2000), false}}
	router := func(name string, ok, other int, outcome string, tokens int) Router {
		return Router{Name: name, Whole: true, Alone: true, Outcomes: map[string]float64{"ok": float64(ok), outcome: float64(other)}, AnswerTokens: float64(tokens),
			Members: map[string][]string{"m": {"p0", "p1"}}, Ring: map[string]uint64{"m": 7}, Owners: map[string]map[string]string{"m": {"k": "p0", "l": "p1"}},
			Goroutines: 41, GoroutinesBefore: 40, Files: 11, FilesBefore: 10}
	}
	h.Routers = []Router{router("r0", 3, 1, "upstream", 4+6+8+3), router("r1", 3, 1, "cancelled", 5+7+9+4)}
	return h
}

func TestASoundHistoryHasNoViolation(t *testing.T) {
	if bad := Check(sound(), DefaultAllowance); len(bad) > 0 {
		t.Errorf("got %v", bad)
	}
}

// harms are one damage of a sound history each, and the rule that it breaks. Each works on any of the places that it may
// have, by chance.
var harms = []struct {
	name string
	rule Rule
	do   func(h *History, r *rand.Rand)
}{
	{"a request has no end", Conserved, func(h *History, r *rand.Rand) { h.Clients[r.IntN(6)].End = time.Time{} }},
	{"a router counts one request more", Conserved, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Outcomes["ok"]++ }},
	{"a router counts one failure more", Conserved, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Outcomes["timeout"]++ }},
	{"a router has lost one that failed", Conserved, func(h *History, r *rand.Rand) { delete(h.Routers[0].Outcomes, "upstream") }},
	{"a router counts a whole answer as a failure", Conserved, func(h *History, r *rand.Rand) {
		o := h.Routers[r.IntN(2)].Outcomes
		o["ok"], o["internal"] = o["ok"]-1, 1
	}},
	{"a request is not recorded", Conserved, func(h *History, r *rand.Rand) { i := r.IntN(6); h.Clients = slices.Delete(h.Clients, i, i+1) }},
	{"a request is still in flight", Quiet, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].InFlight = 1 }},
	{"a request is still queued", Quiet, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Queued = 1 }},
	{"a request is still held", Quiet, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Held = 1 }},
	{"a worker still has a request", Quiet, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].OnWorkers = 1 }},
	{"a usage has a token too many", Billed, func(h *History, r *rand.Rand) { h.Clients[r.IntN(6)].Completion++ }},
	{"a router charges a token too few", Billed, func(h *History, r *rand.Rand) { h.Routers[0].AnswerTokens-- }},
	{"a router charges a token too many", Billed, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].AnswerTokens += 1 }},
	{"a stream is done twice", OneEnd, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(6)]
		c.Events = append(c.Events, Event{At: c.End, Done: true})
	}},
	{"an error follows the end", OneEnd, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(6)]
		c.Events = append(c.Events, Event{At: c.End, Error: "worker_lost"})
	}},
	{"a word follows an error", OneEnd, func(h *History, r *rand.Rand) {
		c := &h.Clients[6]
		c.Events = append(c.Events, Event{At: c.End, Text: Word("w", 3)})
	}},
	{"a request is recorded twice", OneEnd, func(h *History, r *rand.Rand) { h.Clients = append(h.Clients, h.Clients[r.IntN(len(h.Clients))]) }},
	{"a worker gets a request before it has loaded", OnlyReady, func(h *History, r *rand.Rand) {
		h.Attempts[r.IntN(6)].Start = at(-2500 - r.IntN(1000))
	}},
	{"a worker gets a request after it drained", OnlyReady, func(h *History, r *rand.Rand) {
		h.Attempts[6+r.IntN(2)].Start = at(3001 + r.IntN(1000))
	}},
	{"a stream is done without a finish", DoneIsWhole, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(6)]
		c.Events = slices.Delete(c.Events, len(c.Events)-2, len(c.Events)-1)
	}},
	{"a choice that was asked for has not come", DoneIsWhole, func(h *History, r *rand.Rand) { h.Clients[r.IntN(6)].Choices = 2 }},
	{"a router has another ring", SameRing, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Ring["m"]++ }},
	{"a key is another worker's", SameRing, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Owners["m"]["k"] = "p1" }},
	{"goroutines are left", NoLeak, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Goroutines = 65 + r.IntN(100) }},
	{"files are left", NoLeak, func(h *History, r *rand.Rand) { h.Routers[r.IntN(2)].Files = 27 + r.IntN(100) }},
	{"a word is missing", EachOnce, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(6)]
		i := r.IntN(c.Words)
		c.Events = slices.Delete(c.Events, i, i+1)
	}},
	{"a word comes twice", EachOnce, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(7)]
		i := r.IntN(3)
		c.Events = slices.Insert(c.Events, i, c.Events[i])
	}},
	{"a word of an answer that broke comes twice", EachOnce, func(h *History, r *rand.Rand) {
		c := &h.Clients[6+r.IntN(2)]
		c.Events = slices.Insert(c.Events, 1, c.Events[0])
	}},
	{"two words are exchanged", EachOnce, func(h *History, r *rand.Rand) {
		c := &h.Clients[r.IntN(7)]
		i := r.IntN(2)
		c.Events[i].Text, c.Events[i+1].Text = c.Events[i+1].Text, c.Events[i].Text
	}},
	{"more words come than were asked for", EachOnce, func(h *History, r *rand.Rand) { h.Clients[r.IntN(6)].Words-- }},
}

func TestEachViolationIsFoundByItsName(t *testing.T) {
	for _, harm := range harms {
		t.Run(harm.name, func(t *testing.T) {
			h := sound()
			harm.do(h, rand.New(rand.NewPCG(1, 2)))
			bad := Check(h, DefaultAllowance)
			if !slices.ContainsFunc(bad, func(v Violation) bool { return v.Rule == harm.rule }) {
				t.Errorf("got %v, want one of %s", bad, harm.rule)
			}
		})
	}
}

func TestATenantWhoseRequestHasNotEndedIsNamed(t *testing.T) {
	h := sound()
	h.Clients[7].End = time.Time{}
	want := Violation{Conserved, `tenant "tc": 1 requests have not ended`}
	if bad := Check(h, DefaultAllowance); !slices.Contains(bad, want) {
		t.Errorf("got %v", bad)
	}
}

func TestEachRuleHasAViolation(t *testing.T) {
	for _, r := range Rules {
		if !slices.ContainsFunc(harms, func(h struct {
			name string
			rule Rule
			do   func(*History, *rand.Rand)
		}) bool {
			return h.rule == r
		}) {
			t.Errorf("no damage breaks %s", r)
		}
	}
}

func TestWhatMayBeIsNoViolation(t *testing.T) {
	for name, change := range map[string]func(h *History){
		"others have asked the router too": func(h *History) { h.Routers[0].Alone = false; h.Routers[0].Outcomes["invalid"] = 9 },
		"the router is another process": func(h *History) {
			h.Routers[0].Whole = false
			h.Routers[0].Outcomes = nil
			h.Routers[0].AnswerTokens = 0
		},
		"routers with other members have other rings":   func(h *History) { h.Routers[0].Members["m"] = []string{"p0"}; h.Routers[0].Ring["m"] = 9 },
		"the order of members is no matter":             func(h *History) { h.Routers[0].Members["m"] = []string{"p1", "p0"} },
		"a worker is asked within a heartbeat":          func(h *History) { h.Attempts[6].Start = at(2900) },
		"what a client did not get any more is charged": func(h *History) { h.Routers[1].AnswerTokens -= 2 },
		"a client that went away got the end of it":     func(h *History) { h.Routers[1].Outcomes = map[string]float64{"ok": 4} },
		"the router does not know of one that got nothing": func(h *History) {
			h.Clients = append(h.Clients, Client{ID: "d0", Router: "r0", Choices: 1, Words: 3, Start: at(0), End: at(9), Completion: -1, Broken: "connection refused"})
		},
		"a text that is cut within a word": func(h *History) { c := &h.Clients[6]; c.Events[2].Text = " w"; h.Routers[0].AnswerTokens += 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			change(h)
			if bad := Check(h, DefaultAllowance); len(bad) > 0 {
				t.Errorf("got %v", bad)
			}
		})
	}
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	h := sound()
	var b bytes.Buffer
	if err := Write(&b, h); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, h) {
		t.Errorf("got %+v, want %+v", got, h)
	}
	if _, err := Read(bytes.NewBufferString("{}\n")); err == nil {
		t.Error("a record of no kind was read")
	}
}

// FuzzHistoryChecker holds that a history with one damage, of any kind and at any place, is never accepted.
func FuzzHistoryChecker(f *testing.F) {
	for i := range harms {
		f.Add(uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, which uint8, chance uint64) {
		harm := harms[int(which)%len(harms)]
		h := sound()
		harm.do(h, rand.New(rand.NewPCG(chance, 1)))
		if len(Check(h, DefaultAllowance)) == 0 {
			t.Errorf("%s, by chance %d, is accepted", harm.name, chance)
		}
	})
}
