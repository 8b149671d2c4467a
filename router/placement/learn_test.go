package placement

import (
	"math"
	"strconv"
	"testing"
	"time"
)

// near reports whether a is within a part of b.
func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

// answered places a request of so many tokens on any worker and has it answered: the first token after prefill, an answer
// of 100 tokens in a second.
func answered(t *testing.T, b *Board, tokens, cached uint32, prefill time.Duration, now time.Time) *Ticket {
	t.Helper()
	k := place(t, b, &Request{ModelUID: uid, RequestID: "r", PromptBytes: 5 * int(tokens)}, now)
	k.FirstToken(now.Add(prefill))
	k.Ended(Result{Answered: true, PromptTokens: tokens, CachedTokens: cached, CompletionTokens: 100}, now.Add(prefill+time.Second))
	return k
}

func TestThePaceOfPromptsIsLearnt(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*testing.T, *Board)
		want float64 // tokens a second
	}{
		"before the first sample it is the default": {func(*testing.T, *Board) {}, defaultRate},
		"from the time to the first token": {func(t *testing.T, b *Board) {
			for i := range 20 {
				answered(t, b, 8000, 0, time.Second, at(time.Duration(i)*2*time.Second))
			}
		}, 8000},
		"of what was not there already": {func(t *testing.T, b *Board) {
			for i := range 20 {
				answered(t, b, 8000, 6000, time.Second, at(time.Duration(i)*2*time.Second))
			}
		}, 2000},
		"short prompts say nothing": {func(t *testing.T, b *Board) {
			for i := range 20 {
				answered(t, b, 500, 0, time.Second, at(time.Duration(i)*2*time.Second))
			}
		}, defaultRate},
		"from what it reports while it has work": {func(_ *testing.T, b *Board) {
			for i := range 20 {
				b.Observe(uid, "w0", "i0", Load{Running: 1, Prefill: rate(16000)}, at(time.Duration(i)*time.Second))
			}
		}, 16000},
		"not from what it reports without": {func(_ *testing.T, b *Board) {
			for i := range 20 {
				b.Observe(uid, "w0", "i0", Load{Prefill: rate(16000)}, at(time.Duration(i)*time.Second))
			}
		}, defaultRate},
		"nor from what cannot be": {func(_ *testing.T, b *Board) {
			for _, r := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-300, 1e300} {
				b.Observe(uid, "w0", "i0", Load{Running: 1, Prefill: &r, Decode: &r}, epoch)
			}
		}, defaultRate},
		"a stall makes it slower by no more than its weight allows": {func(t *testing.T, b *Board) {
			for i := range 20 {
				answered(t, b, 8000, 0, time.Second, at(time.Duration(i)*2*time.Second))
			}
			answered(t, b, 600, 0, time.Minute, at(time.Minute))
		}, 7200},
		"a time to the first token says little beside a rate while there are other routers": {func(t *testing.T, b *Board) {
			for i := range 20 {
				now := at(time.Duration(i) * 2 * time.Second)
				b.Observe(uid, "w0", "i0", Load{Running: 2, Prefill: rate(8000), RequestIDs: []string{"x", "y"}}, now)
				answered(t, b, 8000, 0, 4*time.Second, now)
			}
		}, 8000},
	} {
		t.Run(name, func(t *testing.T) {
			b := board(Options{}, 1)
			c.do(t, b)
			if got := 1 / lives(b)["w0"].pace; !near(got, c.want, 0.08) {
				t.Errorf("%.0f tokens a second, want %.0f", got, c.want)
			}
		})
	}
}

func TestAWorkerThatWasNotMeasuredHasTheMeanOfTheOthers(t *testing.T) {
	b := board(Options{}, 3)
	for i := range 20 {
		now := at(time.Duration(i) * time.Second)
		b.Observe(uid, "w0", "i0", Load{Running: 1, Prefill: rate(10000)}, now)
		b.Observe(uid, "w1", "i1", Load{Running: 1, Prefill: rate(5000)}, now)
		b.Observe(uid, "w2", "i2", Load{}, now)
	}
	all := lives(b)
	if got := 1 / all["w2"].pace; !near(got, 2/(1./10000+1./5000), 0.02) {
		t.Errorf("%.0f tokens a second", got)
	}
	if fast, slow := 1/all["w0"].pace, 1/all["w1"].pace; fast < 9000 || slow > 5500 {
		t.Errorf("the others have %.0f and %.0f", fast, slow)
	}
	// Half an hour later the slow one may be as fast as any.
	b.Observe(uid, "w0", "i0", Load{Running: 1, Prefill: rate(10000)}, at(30*time.Minute))
	b.Observe(uid, "w1", "i1", Load{}, at(30*time.Minute))
	if got := 1 / lives(b)["w1"].pace; !near(got, 10000, 0.1) {
		t.Errorf("after half an hour without work it is taken for one of %.0f tokens a second", got)
	}
}

func TestTheLengthOfTokensIsLearnt(t *testing.T) {
	b := board(Options{}, 1)
	tokens := func() int {
		k := place(t, b, &Request{ModelUID: uid, PromptBytes: 6000}, epoch)
		k.Ended(Result{}, epoch)
		return k.decision.PromptTokens
	}
	if got := tokens(); got != 1500 {
		t.Errorf("before there was a request it is %d tokens", got)
	}
	for range 30 {
		answered(t, b, 1000, 0, time.Second, epoch) // 5 bytes each
	}
	if got := tokens(); got < 1190 || got > 1215 {
		t.Errorf("it is %d tokens", got)
	}
	for _, odd := range []*Request{
		{ModelUID: uid, PromptBytes: 5 << 20}, // a picture
		{ModelUID: uid, PromptBytes: 100},
		{ModelUID: uid, PromptBytes: 3000, Resume: true},
	} {
		w := workers(1)
		w[0].Resumes = true
		b.Set(of(w), nodes, epoch)
		place(t, b, odd, epoch).Ended(Result{Answered: true, PromptTokens: 1500}, epoch)
	}
	if got := tokens(); got < 1190 || got > 1215 {
		t.Errorf("odd requests make it %d tokens", got)
	}
	exact := place(t, b, &Request{ModelUID: uid, PromptBytes: 6000, PromptTokens: 77}, epoch)
	if exact.decision.PromptTokens != 77 {
		t.Errorf("where it is known it is %d tokens", exact.decision.PromptTokens)
	}
}

func TestTheRoomOfAnAnswerIsLearnt(t *testing.T) {
	b := board(Options{}, 1)
	need := func(most uint32) int64 {
		k := place(t, b, &Request{ModelUID: uid, PromptTokens: 1000, MaxTokens: most}, epoch)
		defer k.Ended(Result{}, epoch)
		return k.need
	}
	if got := need(0); got != 1000+defaultAnswer {
		t.Errorf("%d tokens before there was an answer", got)
	}
	if got := need(10); got != 1010 {
		t.Errorf("%d tokens for an answer of 10 at most", got)
	}
	all := place(t, b, &Request{ModelUID: uid, PromptTokens: 1000, MaxTokens: 10, Choices: 8}, epoch)
	all.Ended(Result{}, epoch)
	if all.need != 1080 {
		t.Errorf("%d tokens for 8 answers of 10 at most", all.need)
	}
	for range 200 {
		answered(t, b, 1000, 0, time.Second, epoch)
	}
	if got := need(0); got < 1090 || got > 1115 {
		t.Errorf("%d tokens after answers of 100", got)
	}
}

func TestChoicesAreMadeSideBySide(t *testing.T) {
	b := board(Options{}, 1)
	for range 200 {
		k := place(t, b, &Request{ModelUID: uid, PromptTokens: 1000, Choices: 4}, epoch)
		k.FirstToken(epoch)
		k.Ended(Result{Answered: true, PromptTokens: 1000, CompletionTokens: 404}, at(2*time.Second))
	}
	if got := b.Estimate(&Request{ModelUID: uid, PromptTokens: 1000}); !near(float64(got), 1101, 0.01) {
		t.Errorf("with one answer it is %d tokens", got)
	}
	if got := lives(b)["w0"].step.value; !near(got, 0.02, 0.01) {
		t.Errorf("from one token to the next it is %.4f s", got)
	}
}

func TestAFewOfItsSeatsAreFreeUnlessItIsSlow(t *testing.T) {
	b := board(Options{}, 3)
	for i, decode := range []float64{100, 100, 20} {
		for s := range 3 {
			b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), Load{Running: 1, Seats: 32 << i, Decode: rate(decode)}, at(time.Duration(s)*time.Second))
		}
	}
	b.Observe(uid, "w0", "i0", Load{Seats: 32}, at(5*time.Second))
	for pod, want := range map[string]int{"w0": 8, "w1": 16, "w2": 0} {
		if got := lives(b)[pod].free(); got != want {
			t.Errorf("%s: %d, want %d", pod, got, want)
		}
	}
}

func TestARequestIsEstimated(t *testing.T) {
	b := board(Options{}, 1)
	for range 200 {
		answered(t, b, 1000, 0, time.Second, epoch) // 5 bytes each, 100 tokens of answer
	}
	for name, c := range map[string]struct {
		q    Request
		want int64
	}{
		"by what is learnt":                {Request{ModelUID: uid, PromptBytes: 5000}, 1100},
		"by what is known":                 {Request{ModelUID: uid, PromptBytes: 5000, PromptTokens: 2000, MaxTokens: 10}, 2010},
		"with all its choices":             {Request{ModelUID: uid, PromptTokens: 2000, MaxTokens: 10, Choices: 8}, 2080},
		"with as many usual ones":          {Request{ModelUID: uid, PromptTokens: 2000, Choices: 3}, 2300},
		"by defaults where nothing is":     {Request{ModelUID: "other", PromptBytes: 4000}, 1000 + defaultAnswer},
		"as one token where there is none": {Request{ModelUID: "other", MaxTokens: 1}, 2},
	} {
		if got := b.Estimate(&c.q); !near(float64(got), float64(c.want), 0.02) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestTheIndexIsToldHowMuchRoomAWorkerHas(t *testing.T) {
	b := board(Options{}, 1)
	room := func() int {
		s, _ := b.index.Worker(b.View(uid).members[0].slot)
		return s.Room
	}
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(16000)}, epoch)
	if got := room(); got != 1000 {
		t.Errorf("16,000 tokens of 4 bytes are %d blocks", got)
	}
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(16500)}, epoch)
	if got := room(); got != 1000 {
		t.Errorf("a little more makes it %d", got)
	}
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(32000)}, epoch)
	if got := room(); got != 2000 {
		t.Errorf("twice as many make it %d", got)
	}
}

func TestTheIndexIsToldOfAWorkerThatReportedBeforeItWasInTheRing(t *testing.T) {
	ws := workers(1)
	ws[0].InRing = false
	b := board(Options{}, 0)
	b.Set(of(ws), nodes, epoch)
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(16000)}, epoch)
	ws[0].InRing = true
	b.Set(of(ws), nodes, epoch)
	b.Observe(uid, "w0", "i0", Load{KVTotal: count(16000)}, epoch)
	if s, _ := b.index.Worker(b.View(uid).members[0].slot); s.Room != 1000 {
		t.Errorf("it has room for %d blocks", s.Room)
	}
}

// TestWhatOthersLeftAtTheOwnerIsLearnt: a router that does not know what others sent learns that more of a prompt is at
// its owner than it knows, and prefers that one as far as it is worth.
func TestWhatOthersLeftAtTheOwnerIsLearnt(t *testing.T) {
	b := board(Options{}, 4)
	for i := range 100 {
		key := "session-" + strconv.Itoa(i)
		k := place(t, b, ask("r", key, text(key, 8000)), epoch)
		cached := uint32(0)
		if k.rank == 0 {
			cached = 1000
		}
		k.Ended(Result{Answered: true, PromptTokens: 2000, CachedTokens: cached, CompletionTokens: 10}, epoch)
	}
	order := walk(4, "another")
	k := place(t, b, ask("r", "another", text("another", 8000)), epoch)
	if k.Worker().Pod != order[0] || k.uncached < 1150 || k.uncached > 1300 {
		t.Errorf("%s has to compute %d tokens", k.Worker().Pod, k.uncached)
	}
	if k.decision.Chosen.Cached != 0 {
		t.Errorf("the index is said to know of %d tokens", k.decision.Chosen.Cached)
	}
}

func TestWhatIsUsualDoesNotDependOnHowFastTheWorkerIs(t *testing.T) {
	b := board(Options{}, 2)
	for i := range 20 {
		for w, tokens := range []float64{1000, 8000} {
			b.Observe(uid, "w"+strconv.Itoa(w), "i"+strconv.Itoa(w), Load{Running: 1, Prefill: rate(tokens)}, at(time.Duration(i)*time.Second))
		}
	}
	answered(t, b, 100, 0, time.Second, at(25*time.Second)) // time passes: means are made
	var usual, own [2]time.Duration
	for w, other := range []string{"w1", "w0"} {
		q := &Request{ModelUID: uid, RequestID: "r", PromptBytes: 5 * 4000, Exclude: []Process{{Pod: other}}}
		k := place(t, b, q, at(30*time.Second))
		usual[w], own[w] = k.Usual(), k.Decision().Chosen.Wait+k.Decision().Chosen.Prefill
		k.Ended(Result{}, at(30*time.Second))
	}
	if usual[0] != usual[1] || usual[0] <= own[1] || usual[0] >= own[0] {
		t.Errorf("usual are %s, predicted %s", usual, own)
	}
}
