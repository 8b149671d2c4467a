package history

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rule is what has to hold of every history.
type Rule string

// The rules.
const (
	// Conserved: what was accepted has completed, failed or was cancelled, by tenant and by router.
	Conserved Rule = "Conserved"
	// Quiet: nothing is in flight or waits once all is over.
	Quiet Rule = "Quiet"
	// Billed: the tokens that are charged are those that were delivered.
	Billed Rule = "Billed"
	// OneEnd: a request ends once, and nothing comes after that.
	OneEnd Rule = "OneEnd"
	// OnlyReady: nothing is sent to a worker that does not serve, a heartbeat after it ceased to.
	OnlyReady Rule = "OnlyReady"
	// DoneIsWhole: a stream that says it is done has finished all its choices.
	DoneIsWhole Rule = "DoneIsWhole"
	// SameRing: equal members make equal rings on all routers.
	SameRing Rule = "SameRing"
	// NoLeak: goroutines and open files are back to what they were.
	NoLeak Rule = "NoLeak"
	// EachOnce: no token is missing or doubled within an answer.
	EachOnce Rule = "EachOnce"
)

// Rules are all of them.
var Rules = []Rule{Conserved, Quiet, Billed, OneEnd, OnlyReady, DoneIsWhole, SameRing, NoLeak, EachOnce}

// Violation is a rule that does not hold, and where.
type Violation struct {
	Rule Rule   `json:"rule"`
	What string `json:"what"`
}

// Allowance is how much a check lets pass.
type Allowance struct {
	// Heartbeat is how long after a worker ceased to serve it may still be asked.
	Heartbeat time.Duration
	// Goroutines and Files may be more than they were: what a connection or two keep.
	Goroutines, Files int
}

// DefaultAllowance holds with the heartbeat that routers have by default.
var DefaultAllowance = Allowance{Heartbeat: time.Second, Goroutines: 24, Files: 16}

// Check returns every violation.
func Check(h *History, a Allowance) []Violation {
	var all []Violation
	add := func(r Rule, format string, args ...any) {
		all = append(all, Violation{r, fmt.Sprintf(format, args...)})
	}
	for i := range h.Clients {
		checkClient(&h.Clients[i], add)
	}
	checkIDs(h.Clients, add)
	checkTenants(h.Clients, add)
	for i := range h.Routers {
		r := &h.Routers[i]
		checkRouter(h, r, add)
		checkQuiet(r, add)
		checkLeak(r, a, add)
	}
	checkRings(h.Routers, add)
	checkReady(h, a, add)
	return all
}

type adder func(r Rule, format string, args ...any)

// Word is the n-th word of a scripted answer as it is sent.
func Word(tag string, n int) string {
	if n == 0 {
		return tag + "0"
	}
	return " " + tag + strconv.Itoa(n)
}

// misplaced returns the first place of a text that is not the next word; -1 where all is in order. Words may be cut at the
// end of a text that did not come to its own.
func misplaced(text string, whole bool) int {
	words := strings.Fields(text)
	for i, w := range words {
		digits := strings.TrimLeft(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
		if n, err := strconv.Atoi(digits); err == nil && n == i && len(digits) < len(w) {
			continue
		}
		if !whole && i == len(words)-1 && strings.HasPrefix(strconv.Itoa(i), digits) {
			continue
		}
		return i
	}
	return -1
}

// checkClient holds one answer to what it may be.
func checkClient(c *Client, add adder) {
	ended := ""
	for _, e := range c.Events {
		switch {
		case ended != "" && e.ends():
			add(OneEnd, "request %s ends by %s, and again", c.ID, ended)
		case ended != "":
			add(OneEnd, "request %s has events after %s", c.ID, ended)
		}
		if e.Done {
			ended = "[DONE]"
		}
		if e.Error != "" {
			ended = "an error"
		}
	}
	if !c.Done() {
		checkWords(c, false, add)
		return
	}
	for i := range max(c.Choices, 1) {
		if c.Finish(i) == "" {
			add(DoneIsWhole, "request %s is done, and its choice %d has no finish", c.ID, i)
		}
	}
	checkWords(c, true, add)
	if n := c.Tokens(); c.Words > 0 && c.Completion >= 0 && c.Completion != n {
		add(Billed, "request %s has a usage of %d tokens, and %d came", c.ID, c.Completion, n)
	}
}

// checkWords looks whether each word of a scripted answer is there once.
func checkWords(c *Client, whole bool, add adder) {
	if c.Words == 0 {
		return
	}
	for i := range max(c.Choices, 1) {
		text := c.Text(i)
		if at := misplaced(text, whole); at >= 0 {
			add(EachOnce, "request %s, choice %d: another word stands where word %d should", c.ID, i, at)
			continue
		}
		switch n := len(strings.Fields(text)); {
		case n > c.Words:
			add(EachOnce, "request %s, choice %d has %d words of %d", c.ID, i, n, c.Words)
		case whole && n < c.Words:
			add(EachOnce, "request %s, choice %d is whole and has %d words of %d", c.ID, i, n, c.Words)
		}
	}
}

// checkIDs looks for requests that are recorded twice.
func checkIDs(clients []Client, add adder) {
	seen := map[string]int{}
	for i := range clients {
		if seen[clients[i].ID]++; seen[clients[i].ID] == 2 {
			add(OneEnd, "request %s is recorded more than once", clients[i].ID)
		}
	}
}

// checkTenants looks whether every request of a tenant has ended.
func checkTenants(clients []Client, add adder) {
	open := map[string]int{}
	for i := range clients {
		if clients[i].Outcome() == Open {
			open[clients[i].Tenant]++
		}
	}
	for _, t := range slices.Sorted(maps.Keys(open)) {
		add(Conserved, "tenant %q: %d requests have not ended", t, open[t])
	}
}

// asked is what the clients of one router say of it. Of a request whose client went away, or got nothing, the router may
// not know.
type asked struct {
	sure, maybe          int
	completed            int
	delivered, undecided int
	countable            bool
}

func askedOf(h *History, router string) asked {
	sent := map[string]int{}
	for _, a := range h.Attempts {
		sent[a.ID] += a.Sent
	}
	s := asked{countable: true}
	for i := range h.Clients {
		c := &h.Clients[i]
		if c.Router != router {
			continue
		}
		if c.Words == 0 {
			s.countable = false
		}
		n := c.Tokens()
		s.delivered += n
		switch o := c.Outcome(); {
		case c.Status == 0:
			s.maybe++
			s.undecided += sent[c.ID]
		case o == Completed:
			s.sure++
			s.completed++
		default:
			s.sure++
			s.undecided += max(sent[c.ID]-n, 0)
		}
	}
	return s
}

// checkRouter holds a router's counts to what its clients saw.
func checkRouter(h *History, r *Router, add adder) {
	if !r.Whole {
		return
	}
	s := askedOf(h, r.Name)
	total := 0.0
	for _, n := range r.Outcomes {
		total += n
	}
	total += r.InFlight
	if total < float64(s.sure) || r.Alone && total > float64(s.sure+s.maybe) {
		add(Conserved, "router %s counts %g requests; its clients sent %d that it answered, and %d that it may know", r.Name, total, s.sure, s.maybe)
	}
	if ok := r.Outcomes["ok"]; r.Alone && (ok < float64(s.completed) || ok > float64(s.completed+s.maybe+len(h.gone(r.Name)))) {
		add(Conserved, "router %s counts %g requests that were well; its clients have %d whole answers", r.Name, ok, s.completed)
	}
	if s.countable && r.Alone && (r.AnswerTokens < float64(s.delivered) || r.AnswerTokens > float64(s.delivered+s.undecided)) {
		add(Billed, "router %s charges %g tokens; %d were delivered, and %d may have been on their way", r.Name, r.AnswerTokens, s.delivered, s.undecided)
	}
}

// gone are the requests to a router whose clients had an answer begun and did not see its end.
func (h *History) gone(router string) (ids []string) {
	for i := range h.Clients {
		if c := &h.Clients[i]; c.Router == router && c.Status != 0 && (c.Gone || c.Broken != "") {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// checkQuiet looks for what is left.
func checkQuiet(r *Router, add adder) {
	if r.InFlight != 0 || r.Queued != 0 || r.Held != 0 || r.OnWorkers != 0 {
		add(Quiet, "router %s has %g requests in flight, %g queued, %g held, and %d on workers", r.Name, r.InFlight, r.Queued, r.Held, r.OnWorkers)
	}
}

func checkLeak(r *Router, a Allowance, add adder) {
	if b := r.GoroutinesBefore; b > 0 && r.Goroutines > b+a.Goroutines {
		add(NoLeak, "router %s has %d goroutines, and had %d", r.Name, r.Goroutines, b)
	}
	if b := r.FilesBefore; b > 0 && r.Files > b+a.Files {
		add(NoLeak, "router %s has %d open files, and had %d", r.Name, r.Files, b)
	}
}

// checkRings compares routers with equal members, model by model.
func checkRings(routers []Router, add adder) {
	for i := range routers {
		for j := range routers[:i] {
			a, b := &routers[j], &routers[i]
			for _, m := range slices.Sorted(maps.Keys(a.Members)) {
				if b.Members[m] == nil || !sameSet(a.Members[m], b.Members[m]) {
					continue
				}
				if a.Ring[m] != b.Ring[m] {
					add(SameRing, "routers %s and %s have equal members of model %s, and rings %x and %x", a.Name, b.Name, m, a.Ring[m], b.Ring[m])
				}
				for k, owner := range a.Owners[m] {
					if other, ok := b.Owners[m][k]; ok && other != owner {
						add(SameRing, "key %s of model %s is %s's on router %s, and %s's on router %s", k, m, owner, a.Name, other, b.Name)
					}
				}
			}
		}
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// checkReady looks for requests that reached an engine whose worker did not serve.
func checkReady(h *History, a Allowance, add adder) {
	of := map[string][]Standing{}
	for _, s := range h.Standings {
		of[s.Pod] = append(of[s.Pod], s)
	}
	for pod := range of {
		slices.SortStableFunc(of[pod], func(a, b Standing) int { return a.At.Compare(b.At) })
	}
	for _, t := range h.Attempts {
		var last *Standing
		for i := range of[t.Pod] {
			if s := &of[t.Pod][i]; !s.At.After(t.Start) {
				last = s
			}
		}
		if last != nil && !last.Serves && t.Start.Sub(last.At) > a.Heartbeat {
			add(OnlyReady, "request %s was sent to %s, which had not served for %s", t.ID, t.Pod, t.Start.Sub(last.At).Round(time.Millisecond))
		}
	}
}
