package placement

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAReasonNamesWhatDecided(t *testing.T) {
	order := walk(2, "k")
	b := board(Options{}, 2)
	for i := range 2 {
		b.Observe(uid, "w"+strconv.Itoa(i), "i"+strconv.Itoa(i), Load{Backlog: count(uint64(400 * (1 + i)))}, epoch)
	}
	k := place(t, b, &Request{ModelUID: uid, RequestID: "r", Key: []byte("k"), PromptTokens: 1000}, epoch)
	want := "LeastPredictedTTFT;wait=100.0ms;prefill=250.0ms;cached=0/1000;load=0;eligible=2/2;next=w1;next-wait=200.0ms;next-prefill=250.0ms"
	if k.Worker().Pod != "w0" || k.Reason() != want {
		t.Errorf("of %v %s has it: %s", order, k.Worker().Pod, k.Reason())
	}
	b.Set(of(workers(1)), nodes, epoch)
	alone := place(t, b, &Request{ModelUID: uid, RequestID: "r", PromptTokens: 1000}, epoch)
	if want := "LeastPredictedTTFT;wait=350.0ms;prefill=250.0ms;cached=0/1000;load=1;eligible=1/1"; alone.Reason() != want {
		t.Errorf("without another worker: %s", alone.Reason())
	}
}

func TestAReasonIsVisibleAndShortWhateverTheNames(t *testing.T) {
	long := strings.Repeat("wörker\r\n;", 40)
	e := Estimate{Pod: long, Wait: seconds(math.Inf(1)), Prefill: seconds(1e12), Cached: math.MaxInt32, Load: math.MaxInt32}
	d := Decision{Policy: long, Chosen: e, RunnerUp: e, PromptTokens: math.MaxInt32, Eligible: 5000, InRing: 5000}
	got := d.Reason()
	if len(got) > 256 || strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if !strings.HasSuffix(got, ";next-wait=86400000.0ms;next-prefill=86400000.0ms") {
		t.Errorf("it is cut: %s", got)
	}
}

func TestTheLastDecisionsAreKept(t *testing.T) {
	b := board(Options{Decisions: 10}, 3)
	if got := b.Decisions(""); len(got) != 0 {
		t.Errorf("before there was one there are %d", len(got))
	}
	for i := range 25 {
		q := ask(fmt.Sprintf("r%d", i/2), "k", "a secret prompt")
		place(t, b, q, at(time.Duration(i)*time.Second)).Ended(Result{}, at(time.Duration(i)*time.Second))
	}
	if _, err := b.Place(&Request{ModelUID: uid, RequestID: "nobody", Exclude: []Process{{Pod: "w0"}, {Pod: "w1"}, {Pod: "w2"}}}, epoch); err == nil {
		t.Error("an excluded worker got it")
	}
	all := b.Decisions("")
	if len(all) != 10 || all[0].At != at(15*time.Second) || all[9].At != at(24*time.Second) {
		t.Errorf("there are %d: %+v", len(all), all)
	}
	if got := b.Decisions("r11"); len(got) != 2 || got[0].RequestID != "r11" || got[1].Policy != DefaultPolicy {
		t.Errorf("of r11 there are %+v", got)
	}
	if got := b.Decisions("r1"); len(got) != 0 {
		t.Errorf("of r1 there are %+v", got)
	}
	if strings.Contains(fmt.Sprintf("%+v", all), "secret") {
		t.Error("they hold the prompt")
	}
}

func TestLevelsHoldWhatWasSentSinceTheReport(t *testing.T) {
	b := board(Options{}, 3)
	if got := b.Levels(uid, epoch); got != (Levels{KVPercent: -1, InRing: 3}) {
		t.Errorf("before a report: %+v", got)
	}
	b.Observe(uid, "w0", "i0", Load{Running: 4, Waiting: 2, Seats: 4, KVTotal: count(10000), KVUsed: count(5000)}, epoch)
	b.Observe(uid, "w1", "i1", Load{Running: 1, Seats: 4, KVTotal: count(10000), KVUsed: count(1000)}, epoch)
	if got := b.Levels(uid, epoch); got != (Levels{KVPercent: 30, Running: 5, Waiting: 2, Seats: 8, InRing: 3}) {
		t.Errorf("after reports: %+v", got)
	}
	q := &Request{ModelUID: uid, RequestID: "r", PromptTokens: 1900, MaxTokens: 100, Exclude: []Process{{Pod: "w0"}, {Pod: "w2"}}}
	k := place(t, b, q, epoch)
	if got := b.Levels(uid, epoch); got != (Levels{KVPercent: 40, Running: 6, Waiting: 2, Seats: 8, InRing: 3}) {
		t.Errorf("with a request on its way: %+v", got)
	}
	k.Ended(Result{}, epoch)
	if got := b.Levels(uid, epoch); got != (Levels{KVPercent: 30, Running: 5, Waiting: 2, Seats: 8, InRing: 3}) {
		t.Errorf("after its end: %+v", got)
	}
	b.Observe(uid, "w1", "i1", Load{KVTotal: count(10000), KVUsed: count(90000)}, epoch)
	if got := b.Levels(uid, epoch); got.KVPercent != 75 {
		t.Errorf("more than all of one makes it %g", got.KVPercent)
	}
	if got := b.Levels("other", epoch); got != (Levels{KVPercent: -1}) {
		t.Errorf("another model has %+v", got)
	}
}
