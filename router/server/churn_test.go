package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/ring"
)

// steady workers stay, so that there is always somebody who answers.
const steady = 2

// happens does something of chance to one worker, if it can.
func (h *herd) happens() {
	pods := h.pods()[steady:]
	w := h.workers[pods[h.chance.IntN(len(pods))]]
	settled := h.round > w.began+1 && h.round > w.broke+1
	known := slices.ContainsFunc(h.routers, func(l *listener) bool { _, ok := l.told[w.pod]; return ok })
	switch do := h.chance.IntN(9); {
	case !w.listed && !known:
		h.list(w)
	case !w.listed || !settled: // let it end, or begin
	case do == 0:
		w.listed = false
	case do == 1:
		w.is.Terminating = true
	case do == 2:
		w.change(func() { w.draining = true })
	case do == 3:
		w.change(func() { w.weight = uint32(50 + h.chance.IntN(200)) })
	case w.silent:
		w.change(func() { w.silent = false })
		w.spoke = h.round
	case do == 4:
		w.change(func() { w.silent = true })
	case do == 5:
		h.fall(w)
	default:
		h.restart(w, do == 6)
	}
}

// churn does something to workers, and lets each router know some of what it does not know yet, in an order of its own.
func (h *herd) churn() {
	for range 1 + h.chance.IntN(2) {
		h.happens()
	}
	for _, l := range h.routers {
		behind := h.behind(l)
		h.chance.Shuffle(len(behind), func(i, j int) { behind[i], behind[j] = behind[j], behind[i] })
		h.learn(l, behind[:h.chance.IntN(len(behind)+1)]...)
	}
}

// place is where a pod is on a router's ring; zero where it is not.
type place struct {
	in     bool
	weight int
}

func (l *listener) place(pod string) (out place) {
	if w, known := l.fleet.board.View("uid-m").Worker(pod); known && w.InRing {
		out = place{true, w.Weight}
	}
	return out
}

// mayDiffer says why two routers may see a worker differently after this heartbeat; empty where they may not.
func (h *herd) mayDiffer(a, b *listener, w *worker) string {
	toldA, knowsA := a.told[w.pod]
	toldB, knowsB := b.told[w.pod]
	silence := 0 // as the one that has it in its ring knows it
	for _, l := range []*listener{a, b} {
		if l.place(w.pod).in {
			silence = h.round - l.heard[w.pod]
		}
	}
	switch {
	case knowsA != knowsB || toldA != toldB:
		return "they were told different things"
	case max(a.fresh[w.pod], b.fresh[w.pod]) == h.round:
		return "one has just begun to listen"
	case h.round <= w.began+1:
		return "its process is new"
	case w.spoke == h.round:
		return "it has just spoken after silence"
	case w.silent && silence < 4:
		return "it is silent for less than three and a half intervals"
	}
	return ""
}

// agree holds that routers see alike what they have both heard of, a heartbeat later at the latest.
func (h *herd) agree() (allAlike int) {
	h.t.Helper()
	for i, a := range h.routers {
		for _, b := range h.routers[i+1:] {
			alike := true
			for _, pod := range h.pods() {
				inA, inB := a.place(pod), b.place(pod)
				if inA == inB {
					continue
				}
				alike = false
				if h.mayDiffer(a, b, h.workers[pod]) == "" {
					h.t.Errorf("round %d: %s is %+v for %s and %+v for %s: %+v, %+v", h.round, pod, inA, a.options.PodName, inB, b.options.PodName,
						a.look(pod), b.look(pod))
				}
			}
			if same := a.version() == b.version(); same != alike {
				h.t.Errorf("round %d: %s and %s have equal members: %v, equal rings: %v", h.round, a.options.PodName, b.options.PodName, alike, same)
			}
			if alike {
				allAlike++
			}
		}
	}
	return allAlike
}

func (l *listener) version() uint64 { return l.fleet.board.View("uid-m").RingVersion() }

// members are those that belong into the ring when all is said.
func (h *herd) members() (out []ring.Member) {
	for _, pod := range h.pods() {
		if w := h.workers[pod]; w.listed && !w.is.Terminating && !w.draining && !w.silent {
			out = append(out, ring.Member{Name: pod, Weight: int(w.weight)})
		}
	}
	return out
}

// owner is where a router places a request with that key, which it then gives back.
func (l *listener) owner(t *testing.T, key string) string {
	t.Helper()
	now := time.Now()
	ticket, err := l.fleet.board.Place(&placement.Request{ModelUID: "uid-m", RequestID: key, Key: []byte(key)}, now)
	if err != nil {
		t.Fatal(err)
	}
	defer ticket.Ended(placement.Result{}, now)
	return ticket.Worker().Pod
}

// status is what a router tells the manager.
func (l *listener) status(t *testing.T) *routerv1.ModelStatus {
	t.Helper()
	conn := l.dial(identity.Manager)
	defer func() { _ = conn.Close() }()
	s, err := routerv1.NewRouterClient(conn).Status(t.Context(), &routerv1.StatusRequest{})
	if err != nil || len(s.Models) != 1 {
		t.Fatalf("%v: %v", s, err)
	}
	return s.Models[0]
}

// clients ask routers. Each answer is whole, or one error.
type clients struct {
	running sync.WaitGroup
	mu      sync.Mutex // guards what follows
	answers map[int]int
	odd     []string
}

// ask asks a router some times at once.
func (c *clients) ask(l *listener, round int) {
	for i := range 4 {
		c.running.Go(func() {
			code, why := l.one(fmt.Sprint(l.options.PodName, "-", round, "-", i))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.answers[code]++
			if why != "" {
				c.odd = append(c.odd, why)
			}
		})
	}
}

// one asks once, in a session of its own. It returns what is wrong with the answer.
func (l *listener) one(session string, headers ...string) (code int, odd string) {
	resp, err := l.chat(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, session), append(headers, telemetry.HeaderSession, session)...)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var got struct {
		Choices []struct{ Message struct{ Content string } }
		Error   *struct{ Code string }
	}
	err = json.NewDecoder(resp.Body).Decode(&got)
	switch {
	case err != nil:
		return resp.StatusCode, err.Error()
	case resp.StatusCode == http.StatusOK && (len(got.Choices) != 1 || got.Choices[0].Message.Content != "Hello"),
		resp.StatusCode != http.StatusOK && (resp.StatusCode < 500 || got.Error == nil || got.Error.Code == ""):
		return resp.StatusCode, fmt.Sprintf("%d %+v", resp.StatusCode, got)
	}
	return resp.StatusCode, ""
}

// Workers come and go, and each router hears of it when chance lets it. Where two have heard the same they agree, a
// heartbeat later at the latest; when all is said they have one ring, and each key has one owner.
func TestRoutersThatHearOfChangesAtTheirOwnTimesAgreeAHeartbeatAfterBothHave(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHerd(t, seed, 3, 8)
			h.settle()
			c := &clients{answers: map[int]int{}}
			const rounds = 30
			alike := 0
			for range rounds {
				for _, l := range h.routers {
					c.ask(l, h.round)
				}
				h.pass(h.churn)
				alike += h.agree()
			}
			if most := 3 * rounds; alike < most/10 || alike > most*9/10 {
				t.Errorf("of %d pairs of rings %d were equal: this seed shows little", most, alike)
			}
			c.running.Wait()
			if errors := 12*rounds - c.answers[http.StatusOK]; len(c.odd) > 0 || errors > rounds/2 {
				t.Errorf("answers by status: %v; odd ones: %q", c.answers, c.odd)
			}
			h.pass(func() {
				for _, l := range h.routers {
					h.learn(l, h.behind(l)...)
				}
			})
			for range 4 {
				h.pass(nothing)
			}
			h.oneRing()
		})
	}
}

// oneRing holds that all routers have the ring that belongs to the workers as they are.
func (h *herd) oneRing() {
	t := h.t
	t.Helper()
	want := ring.New(h.members(), 150)
	if want.Len() <= steady || want.Len() == len(h.workers) {
		t.Errorf("%d of %d workers are in the ring: this seed shows little", want.Len(), len(h.workers))
	}
	for _, l := range h.routers {
		l.eventually("nothing runs", func() bool {
			return !slices.ContainsFunc(l.status(t).Workers, func(w *routerv1.WorkerStatus) bool { return w.InFlight > 0 })
		})
		s := l.status(t)
		in := map[string]bool{}
		for _, w := range s.Workers {
			if w.InRing {
				in[w.PodName] = true
			}
		}
		if s.RingVersion != want.Version() || len(in) != want.Len() {
			t.Errorf("%s has ring %x of %v, want %x of %v", l.options.PodName, s.RingVersion, slices.Sorted(maps.Keys(in)), want.Version(), want.Members())
		}
		for i := range 1000 {
			key := fmt.Sprint("key-", i)
			owner, _ := want.Owner([]byte(key))
			if got := l.owner(t, key); got != owner {
				t.Fatalf("%s places %s at %s, want %s", l.options.PodName, key, got, owner)
			}
		}
		for i := range 20 {
			session := fmt.Sprint("session-", i)
			resp, err := l.chat(ask, telemetry.HeaderSession, session)
			if err != nil {
				t.Fatal(err)
			}
			owner, _ := want.Owner([]byte("session\x00" + session))
			if got := resp.Header.Get(telemetry.HeaderWorker); got != owner || !strings.Contains(body(t, resp), "Hello") {
				t.Errorf("%s sends %s to %s, want %s", l.options.PodName, session, got, owner)
			}
		}
	}
}
