package queue

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/router/admission"
)

var update = flag.Bool("update", false, "rewrite transcripts")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// tiers are those of the tests. bulk has the priority of paid.
var tiers = map[string]admission.Tier{
	"gold": {Name: "gold", Priority: 100, WhenBusy: admission.WhenBusyFirst},
	"paid": {Name: "paid", Priority: 50, WhenBusy: admission.WhenBusyQueue},
	"bulk": {Name: "bulk", Priority: 50, WhenBusy: admission.WhenBusyQueue, MaxQueueRequests: 2, MaxQueue: 5 * time.Second},
	"free": {Name: "free", Priority: 0, WhenBusy: admission.WhenBusyRefuse},
}

func TestQueueTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"priority", "fair", "deadline", "bounds", "hold", "retry"} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			datadriven.RunTest(t, "testdata/"+name, func(t *testing.T, td *datadriven.TestData) string {
				switch td.Cmd {
				case "new":
					s = newScript(t)
					s.configure(td)
				case "run":
					return s.run(td.Input)
				default:
					t.Fatalf("unknown command %q", td.Cmd)
				}
				return s.state()
			})
		})
	}
}

// script plays a transcript against a queue.
type script struct {
	t       *testing.T
	total   Total
	q       *Queue
	limits  *Limits
	names   map[*Entry]string
	waiting map[string]*Entry
	gone    map[string]*Entry // dispatched, by name
	tokens  int64             // of an item that names none
}

func newScript(t *testing.T) *script {
	s := &script{t: t, limits: Limits{}.orDefaults(), names: map[*Entry]string{},
		waiting: map[string]*Entry{}, gone: map[string]*Entry{}, tokens: 10}
	s.q = NewQueue(&s.total, func() float64 { return 0.5 })
	return s
}

func (s *script) configure(td *datadriven.TestData) {
	for _, a := range td.CmdArgs {
		switch a.Key {
		case "requests":
			a.Scan(s.t, 0, &s.limits.Model.Requests)
		case "bytes":
			a.Scan(s.t, 0, &s.limits.Model.Bytes)
		case "hold":
			a.Scan(s.t, 0, &s.limits.Hold.Requests)
		case "all":
			a.Scan(s.t, 0, &s.limits.All.Requests)
		case "tokens":
			a.Scan(s.t, 0, &s.tokens)
		default:
			s.t.Fatalf("unknown setting %q", a.Key)
		}
	}
}

// run plays one event a line: a time, the event and its words.
func (s *script) run(input string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(input, "\n") {
		f := strings.Fields(line)
		at, err := time.ParseDuration(f[0])
		if err != nil {
			s.t.Fatal(err)
		}
		row := fmt.Sprintf("%-5s %-45s %s", f[0], strings.Join(f[1:], " "), s.event(epoch.Add(at), f[1], f[2:]))
		fmt.Fprintln(&out, strings.TrimRight(row, " "))
	}
	return out.String() + s.state()
}

func (s *script) event(now time.Time, what string, words []string) string {
	switch what {
	case "push":
		return s.push(now, words)
	case "go":
		return s.dispatch(now, words)
	case "cancel":
		s.q.Remove(s.waiting[words[0]], now)
		delete(s.waiting, words[0])
		return "has left"
	case "expire":
		return s.expire(now)
	case "ended":
		return s.ended(now, words)
	case "lost":
		return map[bool]string{true: "an episode begins: wake the model", false: "nobody is told"}[s.q.Hold(now)]
	case "worker":
		s.q.Workers(now)
		return ""
	case "retry":
		it, _ := s.item("retry", words)
		told := s.q.Retry(it, false, now)
		return fmt.Sprintf("in %s; its line is at %s", told, s.q.returns.lines[it.Tenant].last.Sub(now).Round(10*time.Millisecond))
	}
	s.t.Fatalf("unknown event %q", what)
	return ""
}

// item reads tier=, tenant=, tokens=, bytes=, deadline= and held.
func (s *script) item(name string, words []string) (it *Item, held bool) {
	it = &Item{RequestID: name, Model: "m", Tier: tiers["paid"], Tokens: s.tokens, Bytes: 1}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "tier":
			it.Tier = tiers[value]
		case "tenant":
			it.Tenant = value
		case "tokens":
			it.Tokens = n
		case "bytes":
			it.Bytes = n
		case "deadline":
			d, err := time.ParseDuration(value)
			if err != nil {
				s.t.Fatal(err)
			}
			it.Deadline = epoch.Add(d)
		case "held":
			held = true
		default:
			s.t.Fatalf("unknown word %q", w)
		}
	}
	return it, held
}

// push makes one wait, or several: c1-c3 are c1, c2 and c3.
func (s *script) push(now time.Time, words []string) string {
	first, last, many := strings.Cut(words[0], "-")
	if !many {
		return s.pushOne(now, first, words[1:])
	}
	stem := strings.TrimRight(first, "0123456789")
	i, _ := strconv.Atoi(first[len(stem):])
	n, _ := strconv.Atoi(last[len(stem):])
	said, displaced, wait := "", "", 0
	for ; i <= n; i++ {
		what, others, _ := strings.Cut(s.pushOne(now, stem+strconv.Itoa(i), words[1:]), "\n")
		if others != "" {
			displaced += "\n" + others
		}
		if what == "waits" {
			wait++
		} else {
			said = "; the last one is told: " + what
		}
	}
	if said == "" {
		return "wait" + displaced
	}
	return fmt.Sprintf("%d wait%s%s", wait, said, displaced)
}

func (s *script) pushOne(now time.Time, name string, words []string) string {
	it, held := s.item(name, words)
	e := newEntry(it, held, s.limits, now)
	displaced, err := s.q.Push(e, s.limits, now)
	said := "waits"
	if err != nil {
		said = err.Error()
	} else {
		s.waiting[name] = e
	}
	for _, d := range displaced {
		delete(s.waiting, d.RequestID)
		said += fmt.Sprintf("\n%52s%s: %s", "", d.RequestID, d.out)
	}
	return said
}

func (s *script) dispatch(now time.Time, words []string) string {
	n, _ := strconv.Atoi(words[0])
	var went []string
	for range n {
		e := s.q.Head(now)
		if e == nil {
			break
		}
		s.q.Take(e, now)
		delete(s.waiting, e.RequestID)
		s.gone[e.RequestID] = e
		went = append(went, e.RequestID)
	}
	if went == nil {
		return "nobody"
	}
	return strings.Join(went, " ")
}

func (s *script) expire(now time.Time) string {
	var over []string
	for e := s.q.arrivals.first; e != nil; {
		next := s.q.arrivals.next(e)
		if !now.Before(e.Expires) {
			s.q.Remove(e, now)
			delete(s.waiting, e.RequestID)
			over = append(over, e.RequestID)
		}
		e = next
	}
	return strings.Join(append(over, ""), " ")
}

// ended reads a name, tokens= and took=.
func (s *script) ended(now time.Time, words []string) string {
	e := s.gone[words[0]]
	tokens, took := e.Tokens, time.Second
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "tokens":
			tokens, _ = strconv.ParseInt(value, 10, 64)
		case "took":
			took, _ = time.ParseDuration(value)
		}
	}
	s.q.Ended(e, e.tokens, tokens, took, now)
	return ""
}

func (s *script) state() string {
	queued, held := s.q.used[0], s.q.used[1]
	return fmt.Sprintf("waiting: %d for room, %d for a worker; %d tokens, %d bytes",
		queued.requests, held.requests, queued.tokens+held.tokens, queued.bytes+held.bytes)
}

func TestCostDoesNotOverflowWhateverAClientSays(t *testing.T) {
	s := newScript(t)
	for i, tokens := range []int64{-1 << 63, 0, 1<<63 - 1, 1<<63 - 1} {
		e := newEntry(&Item{Tenant: strconv.Itoa(i), Tokens: tokens, Bytes: -5}, false, s.limits, epoch)
		if _, err := s.q.Push(e, s.limits, epoch); err != nil {
			t.Fatal(err)
		}
	}
	if u := s.q.used[0]; u.tokens != 2+2*mostTokens || u.bytes != 0 {
		t.Errorf("%+v", u)
	}
	for e := s.q.Head(epoch); e != nil; e = s.q.Head(epoch) {
		s.q.Take(e, epoch)
		s.q.Ended(e, e.tokens, 1<<63-1, -time.Hour, epoch)
	}
	if s.q.used[0] != (usage{}) || s.q.Len() != 0 || len(s.q.classes) != 0 {
		t.Errorf("left: %+v", s.q.used)
	}
}

func TestTwoModelsShareTheRoutersBound(t *testing.T) {
	var total Total
	l := (&Limits{All: Bound{Requests: 3}}).orDefaults()
	a, b := NewQueue(&total, nilChance), NewQueue(&total, nilChance)
	var last *Entry
	for _, q := range []*Queue{a, a, b} {
		last = newEntry(&Item{}, false, l, epoch)
		if _, err := q.Push(last, l, epoch); err != nil {
			t.Fatal(err)
		}
	}
	e := newEntry(&Item{}, false, l, epoch)
	_, err := a.Push(e, l, epoch)
	var full *FullError
	if !errors.As(err, &full) || full.Of != "router" || full.Waiting != 3 || full.Limit != 3 {
		t.Fatalf("%+v", err)
	}
	b.Remove(last, epoch)
	if _, err := a.Push(e, l, epoch); err != nil {
		t.Errorf("a request of the other model has left: %v", err)
	}
}

func nilChance() float64 { return 0 }

func TestABurstOfRefusalsComesBackAtTheRateThatTheModelTakes(t *testing.T) {
	s := newScript(t)
	// One request of ten tokens goes every 100 ms while fifty wait: 10 requests and 100 tokens per second.
	now := epoch
	for i := range 250 {
		e := newEntry(&Item{Tokens: 10, Tier: tiers["paid"]}, false, s.limits, now)
		if _, err := s.q.Push(e, s.limits, now); err != nil {
			t.Fatal(err)
		}
		if i >= 50 {
			now = now.Add(100 * time.Millisecond)
			s.q.Take(s.q.Head(now), now)
		}
	}
	perSecond := map[int]int{}
	earliest := time.Hour
	for range 200 {
		d := s.q.Retry(&Item{Tokens: 10, Tier: tiers["paid"]}, false, now)
		perSecond[int(d/time.Second)]++
		earliest = min(earliest, d)
	}
	if earliest < 5*time.Second || earliest > 6*time.Second {
		t.Errorf("50 requests wait at 10 per second, and the first to come back does so in %s", earliest)
	}
	for at, n := range perSecond {
		if n > 11 {
			t.Errorf("%d come back in second %d", n, at)
		}
	}
}

func TestATenantThatIsRefusedOftenDoesNotKeepOthersAway(t *testing.T) {
	s := newScript(t)
	flood := &Item{Tenant: "flood", Tier: tiers["free"], Tokens: 10}
	for range 10_000 {
		s.q.Retry(flood, false, epoch)
	}
	if d := s.q.Retry(flood, false, epoch); d < earliest {
		t.Errorf("the one that floods may come back in %s", d)
	}
	if d := s.q.Retry(&Item{Tenant: "other", Tier: tiers["free"], Tokens: 10}, false, epoch); d > time.Second {
		t.Errorf("another one may come back only in %s", d)
	}
}

func TestLinesOfTheRefusedAreBoundedAndForgotten(t *testing.T) {
	s := newScript(t)
	for i := range 3 * mostLines {
		s.q.Retry(&Item{Tenant: strconv.Itoa(i)}, false, epoch)
	}
	if n := len(s.q.returns.lines); n > mostLines+1 {
		t.Errorf("%d lines", n)
	}
	s.q.Retry(&Item{Tenant: "late"}, false, epoch.Add(time.Minute))
	if n := len(s.q.returns.lines); n != 1 {
		t.Errorf("%d lines a minute later", n)
	}
}

// Sixteen are at work at a time, for a second each, and end together.
func TestAMeterTellsTheRateOfACrowdBetweenItsEnds(t *testing.T) {
	var m meter
	m.advance(epoch, true)
	for s := range 10 {
		for part := range 9 {
			m.advance(epoch.Add(time.Duration(s)*time.Second+time.Duration(part+1)*100*time.Millisecond), true)
			if _, requests, known := m.rate(); known != (s >= 3) || known && (requests < 15.5 || requests > 16.5) {
				t.Fatalf("after %d.%d s: %f, %v", s, part+1, requests, known)
			}
		}
		m.advance(epoch.Add(time.Duration(s+1)*time.Second), true)
		for range 16 {
			m.add(10)
		}
	}
}

func TestAMeterThatHasSeenNothingGoKnowsAfterTenSeconds(t *testing.T) {
	var m meter
	m.advance(epoch, true)
	for s := range 20 {
		m.advance(epoch.Add(time.Duration(s)*time.Second), true)
		if _, requests, known := m.rate(); known != (s > 10) || requests != 0 {
			t.Errorf("after %d s: %f, %v", s, requests, known)
		}
	}
}

func TestAMeterTellsTheRateFromItsFirstSecondsOn(t *testing.T) {
	var m meter
	m.advance(epoch, true)
	if _, _, known := m.rate(); known {
		t.Error("a rate without a second of time")
	}
	now := epoch
	for i := range 2000 {
		now = now.Add(50 * time.Millisecond)
		m.advance(now, true)
		m.add(7)
		if tokens, requests, known := m.rate(); i > 60 && (!known || requests < 18 || requests > 22 || tokens < 126 || tokens > 154) {
			t.Fatalf("after %d events: %f, %f, %v", i, tokens, requests, known)
		}
	}
	before, _, _ := m.rate()
	m.advance(now.Add(time.Hour), false)
	m.advance(now.Add(time.Minute), true) // a clock that was read earlier
	if after, _, _ := m.rate(); after != before {
		t.Errorf("it stood still, and %f became %f", before, after)
	}
	m.advance(now.Add(time.Hour+time.Minute), true)
	if stalled, _, _ := m.rate(); stalled > before/10 {
		t.Errorf("nothing has come for three times its memory, and it still says %f", stalled)
	}
}
