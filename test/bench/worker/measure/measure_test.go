package measure

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheWorstOfSamplingIsAmongThoseWithAGoal(t *testing.T) {
	got, err := worst([]byte(`{"figures":[{"name":"a","value":0.5,"goal":"≤ 1"},{"name":"b","value":0.7,"goal":"≤ 1"},{"name":"c","value":9}]}`))
	if err != nil || got != 0.7 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{`{"figures":[{"name":"c","value":9}]}`, `{`} {
		if got, err := worst([]byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

func TestTheRestTakesAsLongAsWhatWasDone(t *testing.T) {
	start := time.Unix(1000, 0)
	p := begin(io.Discard, []measure{{pair: 10}, {pair: 50, once: true}}, 5, start)
	if got := p.rest(start); got != 100*time.Second {
		t.Errorf("before anything was done: %s", got)
	}
	p.pass(10)
	if got := p.rest(start.Add(20 * time.Second)); got != 180*time.Second {
		t.Errorf("on a machine that takes twice as long: %s", got)
	}
	p.pass(90)
	if got := p.rest(start.Add(time.Hour)); got != 0 {
		t.Errorf("when all is done: %s", got)
	}
}

func TestTheMeterReadsWhileAllStreamsRun(t *testing.T) {
	reads := 0
	m := &meter{streams: 2, last: 3, read: func() (time.Duration, error) { reads++; return 0, nil }}
	a, b := m.stream(), m.stream()
	a(1)
	a(2)
	if reads != 0 {
		t.Error("it read before both streams had begun")
	}
	b(2) // two tokens at once
	if reads != 1 {
		t.Error("it did not read when both had begun")
	}
	a(3)
	b(4)
	if reads != 2 {
		t.Errorf("it read %d times", reads)
	}
}

func TestTheMetersShareIsTimeUsedOverTimePassed(t *testing.T) {
	at := time.Unix(1000, 0)
	m := &meter{from: reading{at: at, used: time.Second}, to: reading{at: at.Add(2 * time.Second), used: 2500 * time.Millisecond}}
	if got, err := m.share(); err != nil || math.Abs(got-0.75) > 1e-9 {
		t.Errorf("%v, %v", got, err)
	}
	for name, m := range map[string]*meter{
		"they never all ran": {to: reading{at: at}},
		"the clock is gone":  {from: reading{at: at}, to: reading{at: at.Add(time.Second), err: errors.New("gone")}},
	} {
		if got, err := m.share(); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheSecondSideIsFirstInEveryOtherPair(t *testing.T) {
	var order []string
	side := func(name string) func() error {
		return func() error { order = append(order, name); return nil }
	}
	for i := range 3 {
		if err := alternate(i, side("a"), side("b")); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(order, ""); got != "abbaab" {
		t.Errorf("%s", got)
	}
	bad := errors.New("bad")
	order = nil
	if err := alternate(0, func() error { return bad }, side("b")); !errors.Is(err, bad) || order != nil {
		t.Errorf("%v, %v", err, order)
	}
}

// slow answers after a while, or with tokens before.
type slow struct{ tokens int }

func (s slow) Ask(ctx context.Context, _ peers.Request) (timeline.Answer, error) {
	if s.tokens > 0 {
		return timeline.Answer{Arrivals: make([]timeline.Arrival, s.tokens)}, nil
	}
	<-ctx.Done()
	return timeline.Answer{}, ctx.Err()
}

func TestACancelMustComeBeforeTheFirstToken(t *testing.T) {
	if err := within(t.Context(), slow{}, peers.Request{}, time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := within(t.Context(), slow{tokens: 1}, peers.Request{}, time.Hour); err == nil {
		t.Error("a prompt that was computed counts as cancelled")
	}
}

func TestTheMixedLoadIsWhatItSays(t *testing.T) {
	tokens := make([]uint32, 2000)
	for i := range tokens {
		tokens[i] = uint32(i) //nolint:gosec // small
	}
	c, err := peers.NewCorpus(tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	all, lengths := 0, map[int]int{}
	for _, q := range (&Rig{corpus: c}).mix() {
		all += len(q.Prompt)
		lengths[len(q.Prompt)]++
	}
	if all != 4608 || lengths[288] != 12 || lengths[160] != 6 || lengths[32] != 6 {
		t.Errorf("%d tokens, of lengths %v", all, lengths)
	}
}

func TestCachedTokensAreAPartOfPrompts(t *testing.T) {
	if got := cached([]timeline.Answer{{Prompt: 100, Cached: 50}, {Prompt: 300, Cached: 50}}); got != 25 {
		t.Errorf("%v", got)
	}
	if got := cached(nil); got != 0 {
		t.Errorf("%v", got)
	}
}

func TestAMeasureThatIsNotThereIsNamedBesideThoseThatAre(t *testing.T) {
	_, err := (&Rig{Out: io.Discard}).Run(t.Context(), t.TempDir(), []string{"speed"})
	if err == nil || !strings.Contains(err.Error(), `"speed"`) || !strings.Contains(err.Error(), "decode, prefix") {
		t.Errorf("%v", err)
	}
}
