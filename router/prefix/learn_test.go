package prefix

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// settled sends c to s and answers as if the worker had had cached blocks of it.
func settled(x *Index, s Slot, c Chain, cached int) Claim {
	claim := x.Insert(s, c)
	x.Settle(s, c, claim, cached)
	return claim
}

func believed(t *testing.T, x *Index, s Slot) int {
	t.Helper()
	w, ok := x.Worker(s)
	if !ok {
		t.Fatalf("no worker has slot %x", s)
	}
	return w.Believed
}

func TestAnAnswerThatFallsShortTakesAnEighthAndWhatIsOldest(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 1000)
	old, recent := chain(text("old", 400)), chain(text("recent", 400))
	settled(x, w[0], old, 0)
	settled(x, w[0], recent, 0)
	if claim := settled(x, w[0], recent, 300); claim.Known != 400 {
		t.Errorf("%d blocks were known, not 400", claim.Known)
	}
	if got := believed(t, x, w[0]); got != 700 {
		t.Errorf("believed %d, want seven eighths of the 800 that it was thought to have", got)
	}
	want(t, x, w, recent, 400)
	want(t, x, w, old, 300)
}

func TestSmallShortfallsMeanNothing(t *testing.T) {
	for known, cached := range map[int]int{16: 0, 80: 54, 800: 684} {
		x, w := index(t, "w1")
		x.Resize(w[0], 1000)
		c := chain(text("A", known))
		settled(x, w[0], c, 0)
		settled(x, w[0], c, cached)
		if got := believed(t, x, w[0]); got != 1000 {
			t.Errorf("%d blocks of %d took the limit from 1000 to %d", cached, known, got)
		}
		settled(x, w[0], chain(text("A", 100)), 0)
		settled(x, w[0], chain(text("A", 100)), 0)
		if got := believed(t, x, w[0]); got >= 1000 {
			t.Errorf("no block of 100 left the limit at %d", got)
		}
	}
}

func TestWhatIsStillOnItsWayIsNoClaim(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 1000)
	c := chain(text("burst", 400))
	var claims []Claim
	for range 10 {
		claims = append(claims, x.Insert(w[0], c))
	}
	want(t, x, w, c, 400)
	for _, claim := range claims {
		x.Settle(w[0], c, claim, 0)
	}
	if got := believed(t, x, w[0]); got != 1000 {
		t.Errorf("believed %d after a burst that had nothing to share yet", got)
	}
	if claim := x.Insert(w[0], chain(text("burst", 500))); claim.Known != 400 {
		t.Errorf("%d blocks known after the burst, want 400", claim.Known)
	}
}

func TestRequestsThatWereSentOnOneErrorTakeAnEighthOnce(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 1000)
	c := chain(text("A", 800))
	settled(x, w[0], c, 0)
	var claims []Claim
	for range 10 {
		claims = append(claims, x.Insert(w[0], c))
	}
	for _, claim := range claims {
		x.Settle(w[0], c, claim, 0)
	}
	if got := believed(t, x, w[0]); got != 700 {
		t.Errorf("believed %d, want 700", got)
	}
}

func TestGoodAnswersGiveTheRoomBackSlowlyAndNeverMore(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 1000)
	c := chain(text("A", 800))
	settled(x, w[0], c, 0)
	settled(x, w[0], c, 0)
	before := believed(t, x, w[0])
	for range 10 {
		settled(x, w[0], c, 800)
		after := believed(t, x, w[0])
		if after <= before || after > before+before/16 {
			t.Fatalf("from %d to %d with one answer", before, after)
		}
		before = after
	}
	for range 30 {
		settled(x, w[0], c, 800)
	}
	if got := believed(t, x, w[0]); got != 1000 {
		t.Errorf("believed %d after 40 good answers, want the room, 1000", got)
	}
}

func TestAWorkerThatCachesNothingIsBelievedToHaveNothing(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 100_000)
	c := chain(text("A", 800))
	for range 100 {
		settled(x, w[0], c, 0)
	}
	if got := x.Match(c, w, nil)[0]; got > 2*slack {
		t.Errorf("%d blocks believed after 100 answers with nothing cached", got)
	}
	for range 100 {
		settled(x, w[0], c, 800)
	}
	want(t, x, w, c, 800)
}

func TestTheLimitOfAWorkerOfUnknownRoomIsLearntToo(t *testing.T) {
	x, w := index(t, "w1")
	c := chain(text("A", 800))
	settled(x, w[0], c, 0)
	settled(x, w[0], c, 800)
	if got := believed(t, x, w[0]); got != 0 {
		t.Errorf("limit %d before anything was learnt", got)
	}
	settled(x, w[0], c, 0)
	if got := believed(t, x, w[0]); got != 700 {
		t.Errorf("believed %d, want 700", got)
	}
}

func TestALimitNeverBecomesNone(t *testing.T) {
	x, w := index(t, "w1")
	c := chain(text("A", 800))
	settled(x, w[0], c, 0)
	claim := x.Insert(w[0], c)
	x.Resize(w[0], 1)
	x.Settle(w[0], c, claim, 0)
	if got := believed(t, x, w[0]); got != 1 {
		t.Errorf("believed %d, want 1", got)
	}
}

func TestResizeKeepsTheShareThatWasLearnt(t *testing.T) {
	for name, try := range map[string]struct {
		w    worker
		room int
		want worker
	}{
		"the room becomes known":              {worker{}, 500, worker{room: 500, limit: 500}},
		"nothing was learnt":                  {worker{room: 500, limit: 500}, 800, worker{room: 800, limit: 800}},
		"half of it lasts":                    {worker{room: 500, limit: 250}, 800, worker{room: 800, limit: 400}},
		"hardly anything lasts":               {worker{room: 500, limit: 1}, 5, worker{room: 5, limit: 1}},
		"a limit comes before the room":       {worker{limit: 250}, 800, worker{room: 800, limit: 250}},
		"a limit is above the room":           {worker{limit: 900}, 800, worker{room: 800, limit: 800}},
		"the room becomes unknown":            {worker{room: 500, limit: 500}, 0, worker{}},
		"it becomes unknown, a limit remains": {worker{room: 500, limit: 250}, 0, worker{limit: 250}},
	} {
		t.Run(name, func(t *testing.T) {
			try.w.resize(try.room)
			if try.w != try.want {
				t.Errorf("%+v, want %+v", try.w, try.want)
			}
		})
	}
}

// TestTheLimitComesNearTheRealCache plays a worker that keeps half of what it says, as where two routers share it.
func TestTheLimitComesNearTheRealCache(t *testing.T) {
	const room, real = 40_000, 20_000
	x, w := index(t, "w1")
	x.Resize(w[0], room)
	truth := newIndex(4096, 4096, 1)
	there := []Slot{truth.Slot("w1")}
	truth.Resize(there[0], real)
	rng := rand.New(rand.NewPCG(1, 1))
	wrong, sum := 0, 0
	for i := range 4000 {
		c := chain(text(fmt.Sprint("talk ", rng.IntN(120)), 300)) // 36,000 blocks: too many for the cache
		cached := truth.Match(c, there, nil)[0]
		truth.Insert(there[0], c)
		thought := x.Match(c, w, nil)[0]
		settled(x, w[0], c, cached)
		if i >= 2000 {
			wrong += max(thought-cached, cached-thought)
			sum += 300
		}
	}
	if got := believed(t, x, w[0]); got < real/2 || got > real*5/4 {
		t.Errorf("believed %d, the cache has %d", got, real)
	}
	if wrong*4 > sum {
		t.Errorf("wrong about %d blocks of %d", wrong, sum)
	}
}
