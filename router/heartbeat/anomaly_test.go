package heartbeat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// herd is workers whose samples a test makes, on a clock of its own.
type herd struct {
	a       *anomalies
	batches map[string]*[signalCount]batch
	now     time.Time
	told    []Anomaly
	rng     *rand.Rand
	noise   float64 // of the logarithm of a sample
}

func newHerd(workers int) *herd {
	h := &herd{a: newAnomalies(), batches: map[string]*[signalCount]batch{}, now: epoch, rng: rand.New(rand.NewPCG(1, 2)), noise: 0.3}
	for i := range workers {
		pod := fmt.Sprintf("w%d", i)
		h.a.stand(pod, "a")
		h.batches[pod] = &[signalCount]batch{}
	}
	return h
}

func (h *herd) sample(pod string, s Signal, v float64) {
	if x, ok := h.batches[pod][s].add(h.now, v); ok {
		h.told = append(h.told, h.a.point(h.now, pod, s, x)...)
	}
}

// noisy is a time between tokens around 20 ms, times factor.
func (h *herd) noisy(factor float64) float64 {
	return factor * 0.02 * math.Exp(h.noise*h.rng.NormFloat64())
}

// run gives each worker a sample each 350 ms, so that points take a little more than pointTime; factor is each one's.
// It ends after samples ones, or when until holds, and returns how many there were.
func (h *herd) run(samples int, factor func(pod string) float64, until func() bool) int {
	for i := range samples {
		h.now = h.now.Add(350 * time.Millisecond)
		for w := range len(h.batches) {
			pod := fmt.Sprintf("w%d", w)
			h.sample(pod, BetweenTokens, h.noisy(factor(pod)))
		}
		if until != nil && until() {
			return i + 1
		}
	}
	return samples
}

func usual(string) float64 { return 1 }

// times ten for one worker.
func slow(which string) func(string) float64 {
	return func(pod string) float64 {
		if pod == which {
			return 10
		}
		return 1
	}
}

// on is the pods with an alarm, and against what.
func (h *herd) on(pod string, against Against) bool {
	return h.a.workers[pod].series[BetweenTokens].alarms[against].on
}

// only reports an error for each alarm that was told of another worker, or of no worker at all.
func (h *herd) only(t *testing.T, pod string) {
	t.Helper()
	for _, a := range h.told {
		if a.Pod != pod {
			t.Errorf("alarm of another worker: %+v", a)
		}
	}
}

func TestConstantSignalsNeverRaiseAnAlarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHerd(rapid.IntRange(1, 6).Draw(t, "workers"))
		v := rapid.Float64Range(0, 100).Draw(t, "value")
		for range 400 {
			h.now = h.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			for pod := range h.batches {
				h.sample(pod, FirstToken, v)
			}
		}
		if len(h.told) > 0 {
			t.Fatalf("told %+v", h.told)
		}
	})
}

func TestSignalsThatOnlyVaryRaiseNoAlarm(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 4, 16} {
		for _, noise := range []float64{0.1, 0.3, 0.7} {
			h := newHerd(workers)
			h.noise = noise
			h.run(16*2000, usual, nil)
			h.only(t, "")
		}
	}
}

func TestOfFourWorkersTheOneThatBecomesTenTimesSlowerIsFoundWithinEightySamples(t *testing.T) {
	h := newHerd(4)
	h.run(1000, usual, nil)
	if n := h.run(80, slow("w2"), func() bool { return h.on("w2", Peers) }); !h.on("w2", Peers) {
		t.Errorf("not found after %d samples", n)
	}
	h.run(2000, slow("w2"), nil)
	h.only(t, "w2")
	if !h.on("w2", Peers) {
		t.Error("no longer found while it is still slow")
	}
	h.run(100, usual, nil)
	if h.on("w2", Peers) {
		t.Error("still found although it is as the others again")
	}
}

func TestThreeWorkersAreEnoughToFindOneThatWasAlwaysSlow(t *testing.T) {
	h := newHerd(3)
	if n := h.run(240, slow("w0"), func() bool { return h.on("w0", Peers) }); !h.on("w0", Peers) {
		t.Errorf("not found after %d samples", n)
	}
	h.only(t, "w0")
}

func TestOfTwoWorkersNobodyIsTheOddOne(t *testing.T) {
	h := newHerd(2)
	h.run(1000, slow("w0"), nil)
	h.only(t, "")
}

func TestOfTwoHalvesNobodyIsTheOddOne(t *testing.T) {
	h := newHerd(4)
	h.run(1000, func(pod string) float64 {
		if pod < "w2" {
			return 10
		}
		return 1
	}, nil)
	h.only(t, "")
}

func TestWhatComesToAllIsNobodysAnomaly(t *testing.T) {
	for _, workers := range []int{2, 3, 4, 9} {
		h := newHerd(workers)
		h.run(1000, usual, nil)
		h.run(1000, func(string) float64 { return 10 }, nil)
		h.run(1000, usual, nil)
		h.only(t, "")
	}
}

func TestWhatComesToAllIsNobodysAnomalyWhereOneIsHeardMuchMoreOften(t *testing.T) {
	h := newHerd(4)
	for i := range 16 * 2000 {
		h.now = h.now.Add(350 * time.Millisecond)
		factor := 1.0
		if i > 16*1000 {
			factor = 10
		}
		h.sample("w0", BetweenTokens, h.noisy(factor))
		if i%10 == 0 {
			for _, pod := range []string{"w1", "w2", "w3"} {
				h.sample(pod, BetweenTokens, h.noisy(factor))
			}
		}
	}
	h.only(t, "")
}

func TestASingleWorkerIsComparedWithItsPastUntilItsNewLevelIsThePast(t *testing.T) {
	h := newHerd(1)
	h.run(1000, usual, nil)
	if n := h.run(80, slow("w0"), func() bool { return h.on("w0", Past) }); !h.on("w0", Past) {
		t.Errorf("not found after %d samples", n)
	}
	began := h.now
	h.run(16*400, slow("w0"), func() bool { return !h.on("w0", Past) })
	if took := h.now.Sub(began); took < time.Minute || took > 20*time.Minute {
		t.Errorf("the new level became usual after %s", took)
	}
	if len(h.told) != 2 {
		t.Errorf("told %+v", h.told)
	}
}

func TestAWorkerThatIsMuchFasterThanItsPeersIsFoundToo(t *testing.T) {
	h := newHerd(4)
	h.run(1000, func(pod string) float64 {
		if pod == "w1" {
			return 0.1
		}
		return 1
	}, nil)
	if !h.on("w1", Peers) {
		t.Error("not found")
	}
	h.only(t, "w1")
}

func TestAnAlarmDoesNotFlapWhereEverySecondPointIsOdd(t *testing.T) {
	var raised, kept alarm
	kept.on = true
	for i := range 1000 {
		z, now := 0.0, epoch.Add(time.Duration(i)*pointTime)
		if i%2 == 0 {
			z = 9
		}
		if raised.take(now, z, now) || kept.take(now, z, now) {
			t.Fatalf("point %d changes an alarm", i)
		}
	}
}

func TestAShareOfFailuresIsOddOnlyWhereItIsGreater(t *testing.T) {
	h := newHerd(3)
	share := func(pod string, n int) {
		for i := range n {
			h.now = h.now.Add(350 * time.Millisecond)
			for _, p := range []string{"w0", "w1", "w2"} {
				v := 0.0
				if p == pod && i%2 == 0 || i%16 == 3 {
					v = 1
				}
				h.sample(p, FailureShare, v)
			}
		}
	}
	share("", 1000)
	if len(h.told) > 0 {
		t.Errorf("told %+v", h.told)
	}
	share("w1", 100)
	if got := h.a.word("w1"); got != "FailureShare" {
		t.Errorf("the word is %q", got)
	}
	h.only(t, "w1")
}

func TestFewerFailuresThanUsualAreNoAnomaly(t *testing.T) {
	h := newHerd(1)
	for i := range 2000 {
		h.now = h.now.Add(350 * time.Millisecond)
		fails := i < 1000 && i%2 == 0
		h.sample("w0", FailureShare, map[bool]float64{fails: 1}[true])
	}
	if len(h.told) > 0 {
		t.Errorf("told %+v", h.told)
	}
}

func TestAnotherInstanceStartsWithoutThePastOfTheOldOne(t *testing.T) {
	h := newHerd(4)
	h.run(1000, slow("w2"), nil)
	ended := h.a.stand("w2", "b")
	if len(ended) != 1 || ended[0].On || ended[0].Instance != "a" || ended[0].Against != Peers {
		t.Errorf("told %+v", ended)
	}
	if h.a.word("w2") != "" || h.a.workers["w2"].series[BetweenTokens].n != 0 {
		t.Errorf("something is left: %+v", h.a.workers["w2"])
	}
}

func TestAnAlarmEndsWhenItsWorkerIsNotHeardOf(t *testing.T) {
	h := newHerd(4)
	h.run(1000, slow("w2"), nil)
	last := h.a.workers["w2"].series[BetweenTokens].at
	if ended := h.a.tick(last.Add(staleAfter), "w2"); len(ended) > 0 {
		t.Errorf("told too early: %+v", ended)
	}
	ended := h.a.tick(last.Add(staleAfter+1), "w2")
	if len(ended) != 1 || ended[0].On || h.a.word("w2") != "" {
		t.Errorf("told %+v, the word is %q", ended, h.a.word("w2"))
	}
}

func TestWhatIsRememberedOfAWorkerHasAFixedSize(t *testing.T) {
	if size := unsafe.Sizeof(record{}) + unsafe.Sizeof([signalCount]batch{}); size > 1600 {
		t.Errorf("%d bytes for each worker", size)
	}
	h := newHerd(3)
	for i := range 1000 {
		h.a.stand("w0", fmt.Sprint(i))
	}
	if n := len(h.a.workers); n != 3 {
		t.Errorf("%d records of 3 workers", n)
	}
}

func FuzzAnomalies(f *testing.F) {
	f.Add([]byte("\x00\x10\x00\x40"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHerd(3)
		for len(data) >= 4 {
			pod, s := fmt.Sprintf("w%d", data[0]%3), Signal(data[1]%byte(signalCount))
			h.now = h.now.Add(time.Duration(data[2]) * 100 * time.Millisecond)
			v := float64(data[3]) * math.Pow(10, float64(data[1]%13)-6)
			for range pointSamples {
				h.sample(pod, s, v)
			}
			h.now = h.now.Add(pointTime)
			h.sample(pod, s, v)
			data = data[4:]
		}
		for pod, r := range h.a.workers {
			for s := range r.series {
				q := &r.series[s]
				mean, spread := q.usual(Signal(s))
				if math.IsNaN(mean) || math.IsInf(mean, 0) || !(spread > 0) || math.IsInf(spread, 0) {
					t.Errorf("%s %s: mean %g, spread %g", pod, Signal(s), mean, spread)
				}
			}
		}
		for _, a := range h.told {
			if a.On && !(math.Abs(a.Z) > oddZ) {
				t.Errorf("raised at z %g: %+v", a.Z, a)
			}
		}
	})
}
