package queue

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

// plant is a model's workers: requests share a rate of tokens, of which one alone gets only a part, and a KV cache.
type plant struct {
	gate *Gate
	rate float64 // tokens per second of all together
	one  float64 // of one at most
	kv   int64   // tokens

	mu      sync.Mutex
	at      time.Time
	each    float64 // tokens that each of those that run has got since the beginning
	running heap[job]
	used    int64
	timer   *time.Timer
	done    float64 // tokens of requests that were finished
}

// job is a request that runs.
type job struct {
	tokens int64
	until  float64 // it is finished when each has got that much
	over   chan struct{}
	at     int
}

func newPlant(rate, one float64, kv int64) *plant {
	p := &plant{rate: rate, one: one, kv: kv, at: time.Now()}
	p.running = heap[job]{at: func(j *job) *int { return &j.at }, less: func(a, b *job) bool { return a.until < b.until }}
	p.timer = time.AfterFunc(time.Hour, p.finish)
	return p
}

func (p *plant) levels(string) admission.Levels {
	p.mu.Lock()
	defer p.mu.Unlock()
	return admission.Levels{KVPercent: 100 * float64(p.used) / float64(p.kv), InRing: 1}
}

// start is the Try of a request.
func (p *plant) start(j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+j.tokens > p.kv {
		return errNoRoom
	}
	p.advance()
	p.used += j.tokens
	j.until = p.each + float64(j.tokens)
	p.running.push(j)
	p.next()
	return nil
}

// advance brings the plant to now. mu is held, as in next.
func (p *plant) advance() {
	now := time.Now()
	if n := len(p.running.items); n > 0 {
		p.each += now.Sub(p.at).Seconds() * min(p.one, p.rate/float64(n))
	}
	p.at = now
}

// next sets the timer to the next end.
func (p *plant) next() {
	if j := p.running.top(); j != nil {
		speed := min(p.one, p.rate/float64(len(p.running.items)))
		p.timer.Reset(time.Duration((j.until-p.each)/speed*float64(time.Second)) + time.Microsecond)
	}
}

func (p *plant) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance()
	for j := p.running.top(); j != nil && j.until <= p.each; j = p.running.top() {
		p.running.remove(j)
		p.used -= j.tokens
		p.done += float64(j.tokens)
		close(j.over)
	}
	p.next()
}

func (p *plant) finished() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// abort ends a request whose client has gone. What was made of it is for nothing.
func (p *plant) abort(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running.has(j) {
		p.advance()
		p.running.remove(j)
		p.used -= j.tokens
		p.next()
	}
}

// load is one kind of client.
type load struct {
	tier      string
	tenant    string        // the name of its tenants, before their numbers
	from      time.Duration // since the simulation began
	until     time.Duration // 0: to its end
	tenants   int
	perSecond float64
	patience  time.Duration
	retries   int
	rude      bool // comes back after a second, whatever it was told
}

// tally is what became of a load's requests.
type tally struct {
	sent, answered int
	took           []time.Duration // of those answered, from their last try
	comeBacks      map[int]int     // by second
}

// overload runs loads against a plant for a time.
type overload struct {
	*plant
	rng   *rand.Rand
	began time.Time

	goodput float64 // of what the plant can do

	mu    sync.Mutex
	tally []tally
	quick int // refusals within 50 milliseconds
	slow  int // and later ones
}

func simulate(t *testing.T, seed uint64, p *plant, limits Limits, lasts time.Duration, loads ...load) *overload {
	o := &overload{plant: p, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), tally: make([]tally, len(loads))}
	p.gate = New(Options{
		Levels: p.levels, Bands: admission.DefaultBands, Waits: func(err error) bool { return errors.Is(err, errNoRoom) },
		Limits: limits, Clock: clock.RealClock{}, Rand: func() float64 { return o.chance() },
	})
	var all sync.WaitGroup
	for i, l := range loads {
		o.tally[i].comeBacks = map[int]int{}
		if l.until == 0 {
			l.until = lasts
		}
		all.Go(func() {
			pass(l.from)
			for time.Since(o.began) < l.until {
				pass(time.Duration(-math.Log(1-o.chance()) / l.perSecond * float64(time.Second)))
				all.Go(func() { o.client(i, l) })
			}
		})
	}
	pass(lasts)
	o.goodput = p.finished() / (p.rate * lasts.Seconds())
	all.Wait()
	p.gate.Close()
	if s := p.gate.Stats(uid); s.Queued+s.Held != 0 || s.Entered != s.Dispatched+s.Cancelled+s.Expired+s.Refused+s.Failed {
		t.Errorf("left behind: %+v", s)
	}
	return o
}

func (o *overload) chance() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rng.Float64()
}

// client sends a request, and again when it is told to come back.
func (o *overload) client(i int, l load) {
	who := l.tier + l.tenant + strconv.Itoa(int(o.chance()*float64(l.tenants)))
	tokens := int64(100 + 800*o.chance())
	o.mu.Lock()
	o.tally[i].sent++
	o.mu.Unlock()
	for try := range 1 + l.retries {
		began := time.Now()
		wait, ok := o.try(l, who, tokens)
		o.mu.Lock()
		switch took := time.Since(began); {
		case ok:
			o.tally[i].answered++
			o.tally[i].took = append(o.tally[i].took, took)
		case wait > 0 && took <= 50*time.Millisecond:
			o.quick++
		case wait > 0:
			o.slow++
		}
		o.mu.Unlock()
		if ok || wait == 0 || try == l.retries {
			return
		}
		if l.rude {
			wait = time.Second
		}
		pass(wait)
		o.mu.Lock()
		o.tally[i].comeBacks[int(time.Since(o.began).Seconds())]++
		o.mu.Unlock()
	}
}

// try sends it once. It is answered, or may come back after a time; 0: its client has lost patience.
func (o *overload) try(l load, who string, tokens int64) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), l.patience)
	defer cancel()
	j := &job{tokens: tokens, over: make(chan struct{})}
	pass, err := o.gate.Enter(ctx, &Item{
		Model: uid, Tenant: who, Tier: tiers[l.tier], Tokens: tokens, Bytes: 1, Deadline: time.Now().Add(l.patience),
		Try: func(time.Time) error { return o.start(j) },
	})
	if err != nil {
		return o.retryAfter(err), false
	}
	select {
	case <-j.over:
		pass.Done(tokens)
		return 0, true
	case <-ctx.Done():
		o.abort(j)
		pass.Done(-1)
		return 0, false
	}
}

// retryAfter is what a client is told.
func (o *overload) retryAfter(err error) time.Duration {
	var full *FullError
	var refused *RefusedError
	var timeout *TimeoutError
	var d time.Duration
	switch {
	case errors.As(err, &full):
		d = full.RetryAfter
	case errors.As(err, &refused):
		d = refused.RetryAfter
	case errors.As(err, &timeout) && !timeout.Deadline:
		d = timeout.RetryAfter
	default:
		return 0
	}
	return d
}

func (t *tally) share() float64 { return float64(t.answered) / float64(t.sent) }

// quantile is the q-th of the times that answers took.
func (t *tally) quantile(q float64) time.Duration {
	slices.Sort(t.took)
	return t.took[int(q*float64(len(t.took)-1))]
}

// peakOverMean is how uneven those come back who do, between two times.
func (t *tally) peakOverMean(from, to int) float64 {
	most, sum := 0, 0
	for at := from; at < to; at++ {
		most = max(most, t.comeBacks[at])
		sum += t.comeBacks[at]
	}
	return float64(most) * float64(to-from) / float64(max(sum, 1))
}

// Of 5,000 tokens per second, 10 requests of 500: five times as many come.
func TestUnderFiveTimesTheLoadTheWorkersStayBusyAndTheBestTierIsServed(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"clients obey Retry-After": 10 * time.Minute, "half of them do not": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rude := name == "half of them do not"
				o := simulate(t, 1, newPlant(5_000, 50, 75_000), Limits{}, lasts,
					load{tier: "gold", tenants: 3, perSecond: 4, patience: time.Minute, retries: 2},
					load{tier: "paid", tenants: 10, perSecond: 13, patience: time.Minute, retries: 2},
					load{tier: "paid", tenants: 10, perSecond: 13, patience: time.Minute, retries: 2, rude: rude},
					load{tier: "free", tenants: 50, perSecond: 10, patience: time.Minute, retries: 2},
					load{tier: "free", tenants: 50, perSecond: 10, patience: time.Minute, retries: 2, rude: rude},
				)
				t.Logf("goodput %.1f%% of capacity; gold %.2f%%, paid %.1f%%, free %.1f%%; %d refused at once, %d after a wait", 100*o.goodput,
					100*o.tally[0].share(), 100*o.tally[1].share(), 100*o.tally[3].share(), o.quick, o.slow)
				if o.goodput < 0.9 {
					t.Errorf("goodput is %.1f%% of capacity", 100*o.goodput)
				}
				if o.slow > o.quick/100 {
					t.Errorf("%d of %d refusals came late", o.slow, o.slow+o.quick)
				}
				if o.tally[0].share() < 0.99 {
					t.Errorf("%.2f%% of gold's requests were answered", 100*o.tally[0].share())
				}
				back := &tally{comeBacks: map[int]int{}}
				for _, i := range []int{1, 3} { // those who obey
					for at, n := range o.tally[i].comeBacks {
						back.comeBacks[at] += n
					}
				}
				peak := back.peakOverMean(60, int(lasts.Seconds()))
				t.Logf("those who obey come back with peak/mean %.2f", peak)
				if peak > 2 {
					t.Errorf("peak/mean %.2f", peak)
				}
			})
		})
	}
}

// A tenant floods. The other one's requests take as long as if it were alone, but for the next one that ends.
func TestATenantThatFloodsDoesNotSlowAnother(t *testing.T) {
	quiet := load{tier: "paid", tenants: 1, perSecond: 3, patience: time.Minute}
	p99 := func(loads ...load) (p99 time.Duration, share float64) {
		synctest.Test(t, func(t *testing.T) {
			// 200 requests at full speed fill the cache to 90 %.
			o := simulate(t, 2, newPlant(10_000, 50, 111_000), Limits{}, 2*time.Minute, loads...)
			p99, share = o.tally[0].quantile(0.99), o.tally[0].share()
		})
		return p99, share
	}
	solo, _ := p99(quiet)
	flood, share := p99(quiet, load{tier: "paid", tenant: "flood", tenants: 1, perSecond: 100, patience: time.Minute, retries: 2, rude: true})
	t.Logf("p99 %s alone, %s beside a flood", solo, flood)
	if float64(flood) > 1.3*float64(solo) || share < 1 {
		t.Errorf("p99 %s alone and %s beside a flood; %.1f%% were answered", solo, flood, 100*share)
	}
}

// Bursts at a model that is full, and at one of which nothing is known yet: those who are refused come back one after the
// other, not together.
func TestABurstDoesNotComeBackTogether(t *testing.T) {
	for _, at := range []time.Duration{0, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			o := simulate(t, 3, newPlant(10_000, 50, 111_000), Limits{}, 2*time.Minute,
				load{tier: "paid", tenants: 20, perSecond: 20, patience: time.Minute, retries: 2},
				load{tier: "free", tenants: 1000, perSecond: 50_000, from: at, until: at + 100*time.Millisecond, patience: time.Minute, retries: 1})
			first := int(at.Seconds()) + 1
			peak := o.tally[1].peakOverMean(first, first+59)
			t.Logf("%d sent, peak/mean %.2f", o.tally[1].sent, peak)
			if peak > 2 {
				t.Errorf("peak/mean %.2f", peak)
			}
		})
	}
}
