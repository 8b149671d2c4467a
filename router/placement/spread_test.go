package placement

import (
	"container/heap"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"
)

// A quarter of the requests have one prefix and one key, on 200 workers (KubeAI #519: with few requests for many workers
// no worker was within the bound, and all went to one).
func TestAHotPrefixOverManyWorkersLoadsNoneTooMuch(t *testing.T) {
	const n = 200
	hot := text("hot", 4000)
	for _, policy := range Names() {
		t.Run(policy, func(t *testing.T) {
			p, _ := ByName(policy)
			b := board(Options{Policy: p}, n)
			for i := range 1000 {
				id := "r" + strconv.Itoa(i)
				q := ask(id, id, text(id, 400))
				if i%4 == 0 {
					q = ask(id, "hot", hot)
				}
				k := place(t, b, q, epoch)
				most := math.Max(2, math.Ceil(1.25*float64(i+1)/n))
				if got := lives(b)[k.Worker().Pod].load(); float64(got) > most {
					t.Fatalf("of %d requests %s has %d, more than %.0f", i+1, k.Worker().Pod, got, most)
				}
			}
		})
	}
}

func TestABurstBetweenTwoReportsIsSpread(t *testing.T) {
	for _, n := range []int{2, 4, 8, 16} {
		for _, policy := range Names() {
			t.Run(fmt.Sprintf("%s over %d workers", policy, n), func(t *testing.T) {
				p, _ := ByName(policy)
				b := board(Options{Policy: p}, n)
				for i := range n {
					b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), Load{Seats: 64, Backlog: count(0)}, epoch)
				}
				for i := range 100 {
					id := "r" + strconv.Itoa(i)
					place(t, b, ask(id, id, text(id, 2000)), at(time.Duration(i)*time.Millisecond))
				}
				most := 1.25 * 100 / float64(n)
				if policy == "ConsistentHash" { // keys are not spread evenly: only the bound holds
					most = math.Ceil(most)
				}
				if got := loads(b); float64(got[0]) > most {
					t.Errorf("they have %v, the most loaded one more than %g", got, most)
				}
			})
		}
	}
}

// Routers that share nothing see the same idle worker. They learn from what turns up beside their own requests that
// others send there too.
func TestThreeRoutersLearnNotToHerdToTheIdleWorker(t *testing.T) {
	var boards []*Board
	for range 3 {
		boards = append(boards, board(Options{}, 4))
	}
	report := func(work [4]uint64, ids [4][]string) {
		for _, b := range boards {
			for i := range work {
				l := Load{Running: 10*min(i, 1) + len(ids[i]), Backlog: &work[i], Seats: 64, RequestIDs: ids[i]}
				b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), l, epoch)
			}
		}
	}
	var part float64 // of all work, what the idle worker has more than the mean
	for round := range 20 {
		work, ids := [4]uint64{0, 20000, 20000, 20000}, [4][]string{}
		report(work, ids)
		var tickets []*Ticket
		for i := range 72 {
			id := fmt.Sprintf("r%d-%d", round, i)
			k := place(t, boards[i%3], &Request{ModelUID: uid, RequestID: id, Key: []byte(id), PromptTokens: 1000}, epoch)
			w, _ := strconv.Atoi(k.Worker().Pod[1:])
			work[w] += 1000
			ids[w] = append(ids[w], id)
			tickets = append(tickets, k)
		}
		report(work, ids)
		for _, k := range tickets {
			k.Ended(Result{}, epoch)
		}
		part = float64(work[0]) / (float64(work[0]+work[1]+work[2]+work[3]) / 4)
		if round == 0 && part < 1.4 {
			t.Errorf("they know of each other before they met: %v", work)
		}
	}
	if part > 1.25 {
		t.Errorf("the idle worker gets %.2f times the mean", part)
	}
}

// A router to which a worker turns out to be another's favourite leaves it alone, and prefers others.
func TestWhatTurnsUpIsExpectedWhereItTurnedUp(t *testing.T) {
	b := board(Options{}, 2)
	for i := range 50 {
		now := at(time.Duration(i) * 2 * time.Second)
		k := place(t, b, &Request{ModelUID: uid, RequestID: "mine", PromptTokens: 1000}, now)
		b.Observe(uid, "w0", "i0", Load{Running: 1, Backlog: count(8000), RequestIDs: []string{"x"}}, now.Add(time.Second))
		b.Observe(uid, "w1", "i1", Load{Backlog: count(0)}, now.Add(time.Second))
		k.Ended(Result{}, now.Add(time.Second))
		b.Observe(uid, "w0", "i0", Load{Backlog: count(0)}, now.Add(time.Second))
	}
	for i := range 10 {
		k := place(t, b, &Request{ModelUID: uid, Key: []byte(strconv.Itoa(i)), PromptTokens: 1000}, at(100*time.Second))
		if k.Worker().Pod != "w1" {
			t.Errorf("%d went where others go: %s", i, k.Reason())
		}
		k.Ended(Result{}, at(100*time.Second))
	}
}

// ends are requests under way, by the time of their end.
type ends []end

type end struct {
	at     time.Time
	ticket *Ticket
}

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// One of four workers takes ten times as long for each token. It gets no more than its share, and so ever fewer requests.
func TestASlowWorkerHasNoMoreThanItsShare(t *testing.T) {
	for _, policy := range Names() {
		for _, seats := range []int{0, 64} {
			t.Run(fmt.Sprintf("%s with %d seats", policy, seats), func(t *testing.T) { slowWorker(t, policy, seats) })
		}
	}
}

// slowWorker lets requests come for 40 seconds. With many seats it takes a while until it is known who is slow.
func slowWorker(t *testing.T, policy string, seats int) {
	p, _ := ByName(policy)
	b := board(Options{Policy: p}, 4)
	for i := range 4 {
		b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), Load{Seats: seats}, epoch)
	}
	var running ends
	slow := 0
	const requests = 2000
	for i := range requests {
		now := at(time.Duration(i) * 20 * time.Millisecond)
		for len(running) > 0 && !running[0].at.After(now) {
			e := heap.Pop(&running).(end)
			e.ticket.Ended(Result{Answered: true, PromptTokens: 100, CompletionTokens: 50}, e.at)
		}
		id := "r" + strconv.Itoa(i)
		k := place(t, b, ask(id, id, text(id, 400)), now)
		k.FirstToken(now)
		takes := time.Second
		if k.Worker().Pod == "w0" {
			slow++
			takes *= 10
		}
		heap.Push(&running, end{now.Add(takes), k})
		if seats > 0 && (k.Worker().Pod != "w0" || i < 600) {
			continue
		}
		share := max(2, math.Ceil(1.25*float64(len(running))/4))
		if got := lives(b)[k.Worker().Pod].load(); float64(got) > share {
			t.Fatalf("%s has %d of %d requests, more than %.0f", k.Worker().Pod, got, len(running), share)
		}
	}
	if slow > requests/8 {
		t.Errorf("the slow worker got %d of %d requests", slow, requests)
	}
	for pod, l := range lives(b) {
		if pod != "w0" && l.load() > 40 {
			t.Errorf("%s has %d requests under way", pod, l.load())
		}
	}
}

func TestANewWorkerGetsAQuarterOfItsSeats(t *testing.T) {
	for name, c := range map[string]struct {
		seats int
		since time.Duration // before now
		want  int           // of 40 requests for two workers
	}{
		"four of sixteen":                 {16, time.Second, 4},
		"one of three":                    {3, time.Second, 1},
		"one when its seats are unknown":  {0, time.Second, 1},
		"its share when it is new enough": {16, 10 * time.Second, 20},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(time.Minute)
			ws := workers(2)
			ws[0].Since, ws[1].Since = now.Add(-c.since), epoch
			b := board(Options{Policy: LeastLoaded{}}, 0)
			b.Set(of(ws), nodes, now)
			for i := range 2 {
				b.Observe(uid, ws[i].Pod, ws[i].Instance, Load{Seats: c.seats}, now)
			}
			for i := range 40 {
				place(t, b, ask("r", strconv.Itoa(i), "hello"), now)
			}
			if got := lives(b)["w0"].load(); got != c.want {
				t.Errorf("it has %d of 40 requests, want %d", got, c.want)
			}
		})
	}
}

func TestRequestsKeepToWorkersWithRoom(t *testing.T) {
	b := board(Options{}, 2)
	full := Load{Running: 1, KVTotal: count(10000), KVUsed: count(9500), RequestIDs: []string{"x"}}
	free := Load{Running: 1, KVTotal: count(10000), KVUsed: count(5000), RequestIDs: []string{"y"}}
	b.Observe(uid, "w0", "i0", full, epoch)
	b.Observe(uid, "w1", "i1", free, epoch)
	q := &Request{ModelUID: uid, RequestID: "r", PromptTokens: 2000, MaxTokens: 1000}
	first := place(t, b, q, epoch)
	second := place(t, b, q, epoch)
	if first.Worker().Pod != "w1" || second.Worker().Pod != "w1" {
		t.Fatalf("they are on %s and %s", first.Worker().Pod, second.Worker().Pod)
	}
	if _, err := b.Place(q, epoch); err == nil {
		t.Error("there is room for a third, though what was dispatched takes it")
	}
	first.Ended(Result{}, epoch)
	if _, err := b.Place(q, epoch); err != nil {
		t.Errorf("after an end: %v", err)
	}
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(10000), KVUsed: count(0)}, epoch)
	q.PromptTokens = 1 << 20
	if got := place(t, b, q, epoch).Worker().Pod; got != "w0" {
		t.Errorf("what is too long for any worker goes to %s, not to the idle one, which refuses it", got)
	}
}

func TestASessionStaysWhereItsPromptIs(t *testing.T) {
	b := board(Options{}, 8)
	now := epoch
	prompt := text("system", 4000)
	pods := map[string]bool{}
	for turn := range 10 {
		now = now.Add(10 * time.Second)
		prompt += text("turn "+strconv.Itoa(turn), 4000)
		k := place(t, b, ask("r"+strconv.Itoa(turn), "key of turn "+strconv.Itoa(turn), prompt), now)
		pods[k.Worker().Pod] = true
		tokens := uint32(len(prompt) / 4)
		k.FirstToken(now.Add(time.Second))
		k.Ended(Result{Answered: true, PromptTokens: tokens, CachedTokens: uint32(k.part * float64(tokens)), CompletionTokens: 50}, now.Add(2*time.Second))
		if cached := k.decision.Chosen.Cached; turn > 0 && cached < int(tokens)-1100 {
			t.Errorf("turn %d: %s is thought to have %d of %d tokens", turn, k.Worker().Pod, cached, tokens)
		}
	}
	if len(pods) != 1 {
		t.Errorf("it was on %v", pods)
	}
}
