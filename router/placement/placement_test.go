package placement

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

func TestPlacementFollowsTheWalk(t *testing.T) {
	order := walk(4, "session-1")
	for name, c := range map[string]struct {
		suspect, ejected, out []string // pods, by their place in the walk
		exclude               []string
		want                  string // "" means nobody
	}{
		"the owner has the key":                               {want: order[0]},
		"the next takes over from one that was tried":         {exclude: order[:1], want: order[1]},
		"and the one after from two":                          {exclude: order[:2], want: order[2]},
		"a suspect is passed over":                            {suspect: order[:1], want: order[1]},
		"an ejected one is passed over":                       {ejected: order[:1], want: order[1]},
		"suspects and tried ones are passed over":             {suspect: order[:2], exclude: order[2:3], want: order[3]},
		"when only suspects are left, the first of them goes": {suspect: order, want: order[0]},
		"when only ejected ones are left too":                 {ejected: order, want: order[0]},
		"a suspect goes before an ejected one":                {ejected: order[:2], suspect: order[2:], want: order[2]},
		"a suspect that was tried is not tried again":         {suspect: order, exclude: order[:1], want: order[1]},
		"one that is not in the ring gets nothing":            {out: order[:1], want: order[1]},
		"all tried":                  {exclude: order},
		"nobody is in the ring":      {out: order},
		"the only one left is tried": {out: order[1:], exclude: order[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			ws := workers(4)
			for i := range ws {
				ws[i].Suspect = slices.Contains(c.suspect, ws[i].Pod)
				ws[i].Ejected = slices.Contains(c.ejected, ws[i].Pod)
				ws[i].InRing = !slices.Contains(c.out, ws[i].Pod)
			}
			for _, policy := range []string{"ConsistentHash", "LeastPredictedTTFT", "LeastLoaded"} {
				b := board(Options{}, 0)
				b.Set(of(ws), nodes, epoch)
				if err := b.Configure(policy, 125); err != nil {
					t.Fatal(err)
				}
				q := ask("r", "session-1", "hello")
				for _, pod := range c.exclude {
					q.Exclude = append(q.Exclude, Process{Pod: pod, Instance: ws[slices.IndexFunc(ws, func(w Worker) bool { return w.Pod == pod })].Instance})
				}
				got, err := b.Place(q, epoch)
				if err != nil {
					if c.want != "" || !errors.Is(err, ErrNoWorker) || errors.Is(err, ErrNoRoom) {
						t.Errorf("%s: %v, want %q", policy, err, c.want)
					}
					continue
				}
				if w := got.Worker(); w.Pod != c.want || !slices.Contains(ws, w) {
					t.Errorf("%s: %+v, want %q", policy, w, c.want)
				}
			}
		})
	}
}

func TestTheErrorCountsWhatThereIs(t *testing.T) {
	ws := workers(5)
	ws[0].InRing, ws[1].InRing, ws[1].Loaded = false, false, false
	ws[3].Resumes = true
	b := board(Options{}, 0)
	b.Set(of(ws), nodes, epoch)
	for _, pod := range []string{"w2", "w4"} {
		b.Observe(uid, pod, "i"+pod[1:], Load{Running: 1, KVTotal: count(1000), KVUsed: count(1000)}, epoch)
	}
	for name, c := range map[string]struct {
		resume bool
		want   NoWorkerError
		room   bool
		text   string
	}{
		"a request that nobody has room for": {
			want: NoWorkerError{Candidates: 5, Loaded: 4, InRing: 3, Excluded: 1, Full: 2}, room: true,
			text: "no worker has room for the request: of 5 workers 4 have loaded the model and 3 are in the ring; 1 have been tried; the KV caches of 2 are full",
		},
		"an answer that nobody can go on with": {
			resume: true, want: NoWorkerError{Candidates: 5, Loaded: 4, InRing: 3, Excluded: 1, Unable: 2},
			text: "no worker can take the request: of 5 workers 4 have loaded the model and 3 are in the ring; 1 have been tried; 2 can't go on with a begun answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask("r", "k", "hello")
			q.Exclude, q.Resume = []Process{{Pod: "w3"}}, c.resume
			_, err := b.Place(q, epoch)
			var no *NoWorkerError
			if !errors.As(err, &no) || *no != c.want || no.Error() != c.text {
				t.Fatalf("got %#v: %v", err, err)
			}
			if errors.Is(err, ErrNoRoom) != c.room || !errors.Is(err, ErrNoWorker) {
				t.Errorf("%v is the wrong error", err)
			}
		})
	}
	if _, err := b.Place(&Request{ModelUID: "other"}, epoch); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a model without a view gives %v", err)
	}
}

// TestWhatNeverFitsGoesAtOnce: what no worker can ever hold waits for nothing, and holds nobody up. A worker refuses it.
func TestWhatNeverFitsGoesAtOnce(t *testing.T) {
	order := walk(2, "k")
	long := ask("r", "k", text("a", 60000)) // 15,000 tokens
	for name, c := range map[string]struct {
		totals [2]uint64 // of the walk's first and second, which are busy and full
		idle   bool      // the first
		begin  int       // how many such requests came before
		q      *Request
		want   string // pod; "" where it waits
	}{
		"to the first where none can hold it":             {totals: [2]uint64{10000, 10000}, q: long, want: order[0]},
		"again, though half of it is thought to be there": {totals: [2]uint64{10000, 10000}, begin: 1, q: long, want: order[0]},
		"and not what fits without the rest":              {totals: [2]uint64{10000, 10000}, q: &Request{ModelUID: uid, Key: []byte("k"), PromptTokens: 9000}},
		"nor what another can hold once it has room":      {totals: [2]uint64{10000, 20000}, q: long},
		"not even to an idle one that can't":              {totals: [2]uint64{10000, 20000}, idle: true, q: long},
		"but to one of which nothing is known":            {totals: [2]uint64{10000, 0}, q: long, want: order[1]},
		"also for its many answers": {totals: [2]uint64{10000, 10000}, want: order[0],
			q: &Request{ModelUID: uid, Key: []byte("k"), PromptTokens: 9000, Choices: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			b := board(Options{}, 2)
			for i, pod := range order {
				l := Load{Running: 1, KVTotal: count(c.totals[i]), KVUsed: count(c.totals[i])}
				if i == 0 && c.idle {
					l = Load{KVTotal: count(c.totals[i])}
				}
				b.Observe(uid, pod, "i"+pod[1:], l, epoch)
			}
			for range c.begin {
				place(t, b, long, epoch).Ended(Result{}, epoch)
			}
			k, err := b.Place(c.q, epoch)
			if c.want == "" {
				if !errors.Is(err, ErrNoRoom) {
					t.Errorf("it does not wait: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := k.Worker().Pod; got != c.want {
				t.Errorf("%s got it, want %s", got, c.want)
			}
		})
	}
}

func TestOnlyWorkersThatResumeGetABegunAnswer(t *testing.T) {
	order := walk(3, "k")
	ws := workers(3)
	for i := range ws {
		ws[i].Resumes = ws[i].Pod == order[2]
	}
	b := board(Options{}, 0)
	b.Set(of(ws), nodes, epoch)
	q := ask("r", "k", "hello")
	q.Resume = true
	if got := place(t, b, q, epoch).Worker().Pod; got != order[2] {
		t.Errorf("%s got it", got)
	}
}

func TestAWorkerThatLacksTheAdapterIsTheLastOne(t *testing.T) {
	order := walk(3, "k")
	for name, c := range map[string]struct {
		adapters [3][]string // of the walk's first, second and third
		want     int
	}{
		"one that has it goes before one that lacks it":       {[3][]string{{"b"}, {"a", "b"}, nil}, 1},
		"one of which nothing is known goes too":              {[3][]string{{"b"}, nil, {"a"}}, 1},
		"where all lack it the first is asked, which refuses": {[3][]string{{}, {"b"}, {}}, 0},
		"a list that may not be whole says nothing":           {[3][]string{make([]string, mostAdapters), {"a"}, nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := board(Options{}, 3)
			for i, pod := range order {
				b.Observe(uid, pod, "i"+pod[1:], Load{Adapters: c.adapters[i]}, epoch)
			}
			q := ask("r", "k", "hello")
			q.Adapter = "a"
			if got := place(t, b, q, epoch).Worker().Pod; got != order[c.want] {
				t.Errorf("%s got it, want %s", got, order[c.want])
			}
		})
	}
}

func TestAViewKeepsTheRingWhileItsMembersStay(t *testing.T) {
	b := board(Options{}, 3)
	before := b.View(uid)
	changed := workers(3)
	changed[0].Suspect, changed[1].Instance, changed[2].Weight = true, "another", 100
	slices.Reverse(changed)
	b.Set(of(changed), nodes, epoch)
	if v := b.View(uid); v.ring != before.ring || v.RingVersion() != before.RingVersion() {
		t.Error("the ring was made again")
	}
	changed[0].Weight = 200
	b.Set(of(changed), nodes, epoch)
	if v := b.View(uid); v.RingVersion() == before.RingVersion() {
		t.Error("the ring has the weights of before")
	}
	b.Set(of(workers(3)), nodes+1, epoch)
	if v := b.View(uid); v.RingVersion() == before.RingVersion() {
		t.Error("the ring has the number of virtual nodes of before")
	}
	b.Set(of(workers(2)), nodes, epoch)
	b.Set(of(append(workers(3), workers(3)...)), nodes, epoch)
	if v := b.View(uid); v.InRing() != 3 || v.RingVersion() != before.RingVersion() {
		t.Errorf("after a member left and came back there are %d", v.InRing())
	}
}

func TestABoardHasWhatWasSetLast(t *testing.T) {
	b := NewBoard(Options{})
	if v := b.View(uid); v != nil || v.InRing() != 0 || v.Loaded() != 0 || v.Candidates() != 0 || v.RingVersion() != 0 {
		t.Error("an empty board has a view")
	}
	ws := workers(2)
	ws[1].InRing = false
	b.Set(map[string][]Worker{uid: ws, "other": nil}, nodes, epoch)
	v := b.View(uid)
	if w, ok := v.Worker("w1"); !ok || w != ws[1] || v.InRing() != 1 || v.Candidates() != 2 || v.Loaded() != 2 {
		t.Errorf("got %+v of %+v", w, v)
	}
	if _, ok := v.Worker("w2"); ok {
		t.Error("there is a worker that was not set")
	}
	if v := b.View("other"); v == nil || v.Candidates() != 0 || v.Loaded() != 0 {
		t.Errorf("other has %+v", v)
	}
	b.Set(nil, nodes, epoch)
	if b.View(uid) != nil {
		t.Error("a model that is gone has a view")
	}
}

func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	b := board(Options{}, 1)
	for _, c := range []struct {
		policy  string
		percent int
	}{{"Random", 125}, {"", 125}, {"RoundRobin", 99}} {
		if err := b.Configure(c.policy, c.percent); err == nil {
			t.Errorf("%q with %d %% is accepted", c.policy, c.percent)
		}
	}
	if got := place(t, b, ask("r", "k", "hello"), epoch); got.decision.Policy != DefaultPolicy {
		t.Errorf("an error made it %q", got.decision.Policy)
	}
	if err := b.Configure("RoundRobin", 100); err != nil {
		t.Error(err)
	}
	if got := place(t, b, ask("r", "k", "hello"), epoch); got.decision.Policy != "RoundRobin" {
		t.Errorf("it is placed by %q", got.decision.Policy)
	}
}

func TestAnInstanceThatIsGoneIsForgotten(t *testing.T) {
	index := prefix.New(prefix.Options{})
	b := board(Options{Index: index}, 2)
	prompt := text("a", 6400)
	first := place(t, b, ask("r1", "k", prompt), epoch)
	pod := first.Worker().Pod
	changed := workers(2)
	for i := range changed {
		if changed[i].Pod == pod {
			changed[i].Instance = "another"
		}
	}
	b.Set(of(changed), nodes, epoch)
	l := lives(b)[pod]
	if l.load() != 0 || l.outstanding != 0 || l.ahead(epoch) != 0 || l.held() != 0 {
		t.Errorf("the next instance begins with %+v", l)
	}
	first.FirstToken(at(time.Second))
	first.Ended(Result{Answered: true, PromptTokens: 1600, CachedTokens: 10, CompletionTokens: 10}, at(2*time.Second))
	if l.load() != 0 || l.outstanding != 0 || l.freed != 0 {
		t.Errorf("the end of a request of the last instance counts for this one: %+v", l)
	}
	if next := place(t, b, ask("r2", "k", prompt), at(3*time.Second)); next.decision.Chosen.Cached != 0 {
		t.Errorf("it is thought to have %d tokens of what its last instance had", next.decision.Chosen.Cached)
	}
	if n := index.Stats().Workers; n != 2 {
		t.Errorf("the index knows %d instances", n)
	}
}

func TestReadersSeeWholeViewsWhileTheBoardChanges(t *testing.T) {
	b := board(Options{}, 1)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := range 200 {
				b.Set(of(workers(1+i%5)), 10, at(time.Duration(i)*time.Millisecond))
				b.Observe(uid, "w0", "i0", Load{Running: 1, RequestIDs: []string{"a"}}, at(time.Duration(i)*time.Millisecond))
			}
		})
		all.Go(func() {
			for i := range 2000 {
				now := at(time.Duration(i) * time.Millisecond)
				k, err := b.Place(ask("a", string(rune('a'+i%26)), "hello"), now)
				if err != nil || k.Worker().Address == "" {
					t.Errorf("got %+v, %v", k, err)
					return
				}
				k.Accepted(7, now)
				k.FirstToken(now)
				b.Levels(uid, now)
				b.Decisions("a")
				k.Ended(Result{Answered: true, PromptTokens: 7, CompletionTokens: 20}, now)
			}
		})
	}
	all.Wait()
	for pod, l := range lives(b) {
		if l.own != 0 || l.open != nil || l.outstanding != 0 || l.freshWork != 0 || l.freshNeed != 0 {
			t.Errorf("%s is left with %+v", pod, l)
		}
	}
}
