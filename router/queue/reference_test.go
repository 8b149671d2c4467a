package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/router/admission"
)

// plain is the queue again, as a list of all that wait in the order of their arrival. Whatever it is asked it finds by
// going through them.
type plain struct {
	limits  *Limits
	items   []*waiting
	classes map[int32]*plainClass
	seq     int
	pace    pace
	drain   meter
}

type waiting struct {
	*Entry
	id, lateSince int // lateSince: 0 is in time
	class         *plainClass
}

type plainClass struct {
	now  int64
	tags map[string]int64
	ids  map[int]bool // of those that wait
}

// some are those that wait and for whom ok is true.
func (p *plain) some(ok func(*waiting) bool) []*waiting {
	var out []*waiting
	for _, w := range p.items {
		if ok(w) {
			out = append(out, w)
		}
	}
	return out
}

func tokensOf(ws []*waiting) (n int64) {
	for _, w := range ws {
		n += w.tokens
	}
	return n
}

func bytesOf(ws []*waiting) (n int64) {
	for _, w := range ws {
		n += w.bytes
	}
	return n
}

// bound says which bound leaves no room for e, or nothing.
func (p *plain) bound(e *Entry) string {
	same := p.some(func(w *waiting) bool { return w.Held == e.Held })
	tier := p.some(func(w *waiting) bool { return !w.Held && w.Tier.Name == e.Tier.Name })
	own, all := p.limits.of(e.Held)
	rate, _, known := p.drain.rate()
	switch {
	case !e.Held && known && p.drain.n >= few && p.before(e)/rate > e.most.Seconds()*certain:
		return whatSeconds
	case !e.Held && e.Tier.MaxQueueRequests > 0 && len(tier) >= e.Tier.MaxQueueRequests:
		return ofTier
	case len(same) >= int(own.Requests):
		return ofModel
	case e.bytes > own.Bytes:
		return whatBytes
	case bytesOf(same)+e.bytes > own.Bytes:
		return ofModel
	case len(same) >= int(all.Requests):
		return ofRouter
	case e.bytes > all.Bytes:
		return whatBytes
	case bytesOf(same)+e.bytes > all.Bytes:
		return ofRouter
	}
	return ""
}

// before is what is likely to go before e: all of better ones, and of each tenant of its own priority as much as it has.
func (p *plain) before(e *Entry) float64 {
	better := tokensOf(p.some(func(w *waiting) bool { return w.Tier.Priority > e.Tier.Priority }))
	equals := p.some(func(w *waiting) bool { return w.Tier.Priority == e.Tier.Priority })
	own, tenants := e.tokens, map[string]bool{}
	for _, w := range equals {
		tenants[w.Tenant] = true
		if w.Tenant == e.Tenant {
			own += w.tokens
		}
	}
	return float64(better) + min(float64(tokensOf(equals)), float64(own)*float64(len(tenants)))
}

// victim is who makes room for e.
func (p *plain) victim(e *Entry, of string) *waiting {
	if len(p.items) == 0 || of == whatSeconds || of == whatBytes { // whatBytes: it is larger than the bound
		return nil
	}
	lowest := p.items[0].Tier.Priority
	for _, w := range p.items {
		lowest = min(lowest, w.Tier.Priority)
	}
	if of == ofTier {
		lowest = e.Tier.Priority
	}
	if lowest > e.Tier.Priority {
		return nil
	}
	var longest []*waiting
	for _, of := range p.some(func(w *waiting) bool { return w.Tier.Priority == lowest }) {
		all := p.some(func(w *waiting) bool { return w.Tier.Priority == lowest && w.Tenant == of.Tenant })
		if a, b := tokensOf(all), tokensOf(longest); a > b || a == b && longest[len(longest)-1].first(all[len(all)-1]) {
			longest = all
		}
	}
	v := longest[len(longest)-1]
	mine := tokensOf(p.some(func(w *waiting) bool { return w.Tier.Priority == lowest && w.Tenant == e.Tenant })) + e.tokens
	switch {
	case v.Held != e.Held, of == ofTier && v.Tier.Name != e.Tier.Name:
		return nil
	case lowest == e.Tier.Priority && (v.Tenant == e.Tenant || tokensOf(longest) <= mine):
		return nil
	}
	return v
}

// tick lets the rate know how long something has waited.
func (p *plain) tick(now time.Time) { p.drain.advance(now, len(p.items) > 0) }

// push returns the ids of those that are displaced, and whether e waits.
func (p *plain) push(e *Entry, id int, now time.Time) (displaced []int, ok bool) {
	for {
		p.tick(now)
		of := p.bound(e)
		if of == "" {
			break
		}
		v := p.victim(e, of)
		if v == nil || len(displaced) == mostDisplaced {
			return displaced, false
		}
		p.remove(v, now)
		displaced = append(displaced, v.id)
	}
	c := p.classes[e.Tier.Priority]
	if c == nil {
		c = &plainClass{tags: map[string]int64{}, ids: map[int]bool{}}
		p.classes[e.Tier.Priority] = c
	}
	if len(p.some(func(w *waiting) bool { return w.class == c && w.Tenant == e.Tenant && w.lateSince == 0 })) == 0 {
		c.tags[e.Tenant] = max(c.tags[e.Tenant], c.now)
	}
	c.ids[id] = true
	w, at := &waiting{Entry: e, id: id, class: c}, 0
	for i, o := range p.items {
		if o.first(w) || o.lateSince > 0 && o.class == c && o.Tenant == e.Tenant {
			at = i + 1
		}
	}
	p.items = slices.Insert(p.items, at, w)
	return displaced, true
}

// first reports whether w has waited for longer than o, or came first.
func (w *waiting) first(o *waiting) bool {
	return w.Since.Before(o.Since) || w.Since.Equal(o.Since) && w.id < o.id
}

func (p *plain) head(now time.Time) *waiting {
	if len(p.items) == 0 {
		return nil
	}
	highest := p.items[0].Tier.Priority
	for _, w := range p.items {
		highest = max(highest, w.Tier.Priority)
	}
	for {
		var best, late *waiting
		seen := map[string]bool{}
		for _, w := range p.some(func(w *waiting) bool { return w.Tier.Priority == highest }) {
			tag := w.class.tags[w.Tenant]
			switch {
			case w.lateSince > 0 && (late == nil || w.lateSince < late.lateSince):
				late = w
			case w.lateSince > 0 || seen[w.Tenant]:
			case best == nil || tag < best.class.tags[best.Tenant] || tag == best.class.tags[best.Tenant] && w.first(best):
				best = w
			}
			seen[w.Tenant] = seen[w.Tenant] || w.lateSince == 0
		}
		if best == nil {
			return late
		}
		if best.Deadline.IsZero() || !now.Add(p.pace.of(best.tokens)).After(best.Deadline) {
			return best
		}
		p.seq++
		best.lateSince = p.seq
	}
}

func (p *plain) take(w *waiting, now time.Time) {
	p.tick(now)
	p.drain.add(w.tokens)
	c := w.class
	if w.lateSince == 0 {
		c.now = max(c.now, c.tags[w.Tenant])
	}
	if !w.Held {
		c.tags[w.Tenant] += w.tokens
	}
	p.remove(w, now)
}

func (p *plain) remove(w *waiting, now time.Time) {
	p.tick(now)
	for i, o := range p.items {
		if o == w {
			p.items = append(p.items[:i:i], p.items[i+1:]...)
			break
		}
	}
	if delete(w.class.ids, w.id); len(w.class.ids) == 0 {
		delete(p.classes, w.Tier.Priority)
	}
}

func (p *plain) ended(w *waiting, tokens int64) {
	if tokens > 0 { // else nothing ran, which says nothing of the pace
		p.pace.add(time.Second, w.tokens)
	}
	c := w.class
	if w.Held || p.classes[w.Tier.Priority] != c {
		return
	}
	tag := c.tags[w.Tenant]
	if len(p.some(func(o *waiting) bool { return o.class == c && o.Tenant == w.Tenant })) == 0 {
		tag = max(tag, c.now)
	}
	c.tags[w.Tenant] = max(tag+tokens-w.tokens, c.now)
}

// drawn are the tiers of the random comparison. The first two share a priority.
var drawn = []admission.Tier{
	{Name: "paid", Priority: 5},
	{Name: "bulk", Priority: 5, MaxQueueRequests: 3},
	{Name: "gold", Priority: 9},
	{Name: "free", Priority: -2},
}

// pair plays the same steps on both queues.
type pair struct {
	total Total
	q     *Queue
	p     *plain
	now   time.Time
	ran   []*waiting
	real  map[int]*Entry
	ids   map[*Entry]int
	n     struct{ entered, dispatched, left, refused int }
}

// compare plays steps that draw chooses, and describes the first difference.
func compare(draw func(n int) int, steps int) string {
	l := (&Limits{
		Model: Bound{Requests: int64(2 + draw(12)), Bytes: 60}, All: Bound{Requests: int64(2 + draw(12)), Bytes: 60},
		Hold: Bound{Requests: int64(1 + draw(6)), Bytes: 30}, HoldAll: Bound{Requests: 6, Bytes: 25},
		MaxQueue: 20 * time.Second, MaxHold: 40 * time.Second,
	}).orDefaults()
	s := &pair{now: epoch, p: &plain{limits: l, classes: map[int32]*plainClass{}}, real: map[int]*Entry{}, ids: map[*Entry]int{}}
	s.q = NewQueue(&s.total, nilChance)
	if draw(2) == 0 { // requests take a second per ten tokens
		s.q.pace = pace{seconds: 10, tokens: 100, n: fewest}
		s.p.pace = s.q.pace
	}
	for i := range steps {
		if diff := s.step(draw, l); diff != "" {
			return fmt.Sprintf("step %d: %s", i, diff)
		}
		if diff := s.check(); diff != "" {
			return fmt.Sprintf("after step %d: %s", i, diff)
		}
	}
	return ""
}

func (s *pair) step(draw func(n int) int, l *Limits) string {
	switch what := draw(16); {
	case what < 7:
		return s.push(draw, l)
	case what < 11:
		return s.take()
	case what < 12 && len(s.p.items) > 0:
		w := s.p.items[draw(len(s.p.items))]
		s.p.remove(w, s.now)
		s.leave(w.id)
		s.n.left++
	case what < 14 && len(s.ran) > 0:
		i := draw(len(s.ran))
		w, tokens := s.ran[i], []int64{0, 1, 5, 50}[draw(4)]
		s.ran = append(s.ran[:i], s.ran[i+1:]...)
		s.p.ended(w, tokens)
		s.q.Ended(w.Entry, w.tokens, tokens, time.Second, s.now)
	default:
		s.now = s.now.Add(time.Duration(draw(5)) * 700 * time.Millisecond)
		s.expire()
	}
	return ""
}

func (s *pair) push(draw func(n int) int, l *Limits) string {
	it := &Item{
		Tenant: string(rune('a' + draw(4))), Tier: drawn[draw(len(drawn))],
		Tokens: []int64{1, 10, 10, 30, 200}[draw(5)], Bytes: int64([]int{0, 1, 5, 10, 20, 28, 70}[draw(7)]),
	}
	if draw(3) == 0 {
		it.Deadline = s.now.Add(time.Duration(draw(8)) * time.Second)
	}
	if draw(4) == 0 {
		it.Waited, it.WasHeld = time.Duration(draw(8))*time.Second, draw(2) == 0
	}
	e := newEntry(it, draw(4) == 0, l, s.now)
	s.n.entered++
	id := s.n.entered
	s.ids[e] = id
	displaced, err := s.q.Push(e, l, s.now)
	want, ok := s.p.push(e, id, s.now)
	got := []int{}
	for _, d := range displaced {
		got = append(got, s.ids[d])
		delete(s.real, s.ids[d])
		if d.out == nil {
			return fmt.Sprintf("%d was displaced without a word", s.ids[d])
		}
	}
	s.n.refused += len(displaced)
	if fmt.Sprint(got) != fmt.Sprint(append([]int{}, want...)) || ok != (err == nil) {
		return fmt.Sprintf("push of %d: displaced %v (%v), the reference %v (%v)", id, got, err, want, ok)
	}
	if ok {
		s.real[id] = e
	} else {
		s.n.refused++
	}
	return ""
}

func (s *pair) take() string {
	w, e := s.p.head(s.now), s.q.Head(s.now)
	if w == nil || e == nil {
		if w != nil || e != nil {
			return fmt.Sprintf("head %v, the reference %v", e, w)
		}
		return ""
	}
	if s.ids[e] != w.id {
		return fmt.Sprintf("%d goes, in the reference %d", s.ids[e], w.id)
	}
	for _, o := range s.p.items {
		if o.Tier.Priority > e.Tier.Priority {
			return fmt.Sprintf("%d of priority %d goes while %d of %d waits", w.id, e.Tier.Priority, o.id, o.Tier.Priority)
		}
	}
	s.p.take(w, s.now)
	s.q.Take(e, s.now)
	delete(s.real, w.id)
	s.ran = append(s.ran, w)
	s.n.dispatched++
	return ""
}

func (s *pair) leave(id int) {
	s.q.Remove(s.real[id], s.now)
	delete(s.real, id)
}

func (s *pair) expire() {
	for _, w := range s.p.some(func(w *waiting) bool { return !s.now.Before(w.Expires) }) {
		s.p.remove(w, s.now)
		s.leave(w.id)
		s.n.left++
	}
}

// check compares the figures: nothing is lost, and nothing counts twice.
func (s *pair) check() string {
	held := s.p.some(func(w *waiting) bool { return w.Held })
	queued := s.p.some(func(w *waiting) bool { return !w.Held })
	for i, ws := range [][]*waiting{queued, held} {
		want := usage{int64(len(ws)), bytesOf(ws), tokensOf(ws)}
		total := s.total.of(i == 1)
		if got := s.q.used[i]; got != want || total.requests.Load() != want.requests || total.bytes.Load() != want.bytes {
			return fmt.Sprintf("it counts %+v, and %d requests in all; the reference %+v", got, total.requests.Load(), want)
		}
	}
	n := s.n
	if waits := len(s.p.items); n.entered != n.dispatched+n.left+n.refused+waits || s.q.Len() != waits {
		return fmt.Sprintf("entered %d = dispatched %d + left %d + refused %d + waiting %d", n.entered, n.dispatched, n.left, n.refused, waits)
	}
	for _, c := range s.q.classes {
		for _, f := range c.flows {
			if f.entries.n == 0 && f.tag <= c.now {
				return fmt.Sprintf("tenant %s is remembered for nothing", f.tenant)
			}
		}
	}
	return ""
}

func TestTheQueueAgreesWithANaiveReferenceOnFiveThousandHistories(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 14))
	for i := range 5_000 {
		if diff := compare(rng.IntN, 10+rng.IntN(60)); diff != "" {
			t.Fatalf("history %d: %s", i, diff)
		}
	}
}

func TestTheQueueAgreesWithANaiveReferenceOnShrinkableHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		if diff := compare(draw, rapid.IntRange(1, 60).Draw(t, "steps")); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzQueue takes each choice from a byte.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{4, 4, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		if diff := compare(next, min(len(data), 300)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTwoTenantsThatBothWaitNeverDifferByMoreThanARequestOfEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "tenants")
		var total Total
		l := (&Limits{Model: Bound{Requests: 1 << 20, Bytes: 1 << 40}, All: Bound{Requests: 1 << 20, Bytes: 1 << 40}}).orDefaults()
		q := NewQueue(&total, nilChance)
		served, largest := make([]int64, n), make([]int64, n)
		push := func(i int) {
			tokens := int64(rapid.IntRange(1, 5000).Draw(t, "tokens"))
			largest[i] = max(largest[i], tokens)
			e := newEntry(&Item{Tenant: string(rune('a' + i)), Tokens: tokens}, false, l, epoch)
			if _, err := q.Push(e, l, epoch); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			for range rapid.IntRange(1, 4).Draw(t, "wait") {
				push(i)
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "go") {
			e := q.Head(epoch)
			q.Take(e, epoch)
			i := int(e.Tenant[0] - 'a')
			served[i] += e.tokens
			push(i) // it always waits
			for j := range n {
				if d := served[i] - served[j]; d > largest[i]+largest[j] {
					t.Fatalf("tenant %d got %d tokens and %d only %d, with requests of at most %d and %d", i, served[i], j, served[j], largest[i], largest[j])
				}
			}
		}
	})
}
