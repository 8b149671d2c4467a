package clients

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

func TestBodiesHaveTheSizeThatIsAsked(t *testing.T) {
	for _, n := range []int{200, 32_769} {
		if got := len(sized(n)); got != n {
			t.Errorf("a body of %d bytes has %d", n, got)
		}
	}
	body := strings.Repeat("x", 64<<10+1)
	if got := chunks(body); !strings.HasPrefix(got, "10000\r\n") || !strings.HasSuffix(got, "\r\n1\r\nx\r\n0\r\n\r\n") {
		t.Errorf("chunks begin %.8q and end %q", got, got[len(got)-16:])
	}
}

func TestAWaveIsThePeakOfThoseThatCameBackOverTheirMean(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	at := func(seconds ...float64) (all []history.Client) {
		for _, s := range seconds {
			all = append(all, history.Client{Start: began.Add(time.Duration(s * float64(time.Second)))})
		}
		return all
	}
	for name, c := range map[string]struct {
		all           []history.Client
		peak, seconds float64
	}{
		"nobody":                {nil, math.NaN(), 0},
		"nobody came back":      {at(0, 0.5), math.NaN(), 0},
		"all came in turn":      {at(0, 1, 2, 3), 1, 3},
		"all came together":     {at(0, 4, 4.2, 4.4), 4, 4},
		"the first don't count": {at(0, 0, 0, 0, 1, 2), 1, 2},
	} {
		if peak, seconds := wave(c.all); math.IsNaN(peak) != math.IsNaN(c.peak) || math.Abs(peak-c.peak) > 1e-9 || seconds != c.seconds {
			t.Errorf("%s: peak %g in %g s, want %g in %g s", name, peak, seconds, c.peak, c.seconds)
		}
	}
}

func TestARefusalNamesItsParameter(t *testing.T) {
	const body = `{"error":{"message":"m","type":"t","param":"user","code":"c"}}`
	for name, c := range map[string]struct {
		answer answer
		param  string
		want   bool
	}{
		"the right one":            {answer{status: 400, body: body}, "user", true},
		"any":                      {answer{status: 400, body: body}, "*", true},
		"another":                  {answer{status: 400, body: body}, "model", false},
		"another status":           {answer{status: 413, body: body}, "user", false},
		"none, where there is one": {answer{status: 400, body: strings.Replace(body, `"user"`, "null", 1)}, "*", false},
		"no JSON":                  {answer{status: 400, body: "no"}, "", false},
	} {
		if got := refused(c.answer, c.param); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSharesAndTimesAreOfWhatWasAnswered(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	s := seenBy([]history.Client{
		{Stream: true, Status: 200, Start: began, End: began.Add(time.Second), Events: []history.Event{{At: began.Add(time.Second / 2), Text: "w0"}, {Done: true}}},
		{Status: 429, Start: began, End: began.Add(time.Minute)},
	})
	if s.asked != 2 || s.failed != 1 || s.share() != 50 || s.whole.Max() != 1 || s.first.Max() != 0.5 {
		t.Errorf("seen: %+v", s)
	}
}
