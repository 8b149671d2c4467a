package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked serves a handler, and returns a target of two requests that differ in a header.
func asked(t *testing.T, h http.HandlerFunc) Target {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Target{Address: s.Listener.Addr().String(), Requests: [][]byte{
		Request("/v1/x", `{"a":1}`, "x-session-id: 0"), Request("/v1/x", `{"a":1}`, "x-session-id: 1"),
	}}
}

func TestEachConnectionSendsItsOwnRequestUntilTheTimeIsOver(t *testing.T) {
	var seen [2]atomic.Int64
	target := asked(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"a":1}` || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		seen[r.Header.Get("X-Session-Id")[0]-'0'].Add(1)
		fmt.Fprint(w, "ok")
	})
	got := Closed(t.Context(), target, 2, 500*time.Millisecond)
	if got.Failed != 0 || got.Requests == 0 || seen[0].Load() == 0 || seen[1].Load() == 0 || got.P99 < got.P50 {
		t.Errorf("%+v, %d and %d requests", got, seen[0].Load(), seen[1].Load())
	}
	if sum := seen[0].Load() + seen[1].Load(); sum != int64(got.Requests) {
		t.Errorf("%d requests are counted, %d came", got.Requests, sum)
	}
}

func TestAnOpenLoadAsksAsOftenAsItShouldWhateverTheServerDoes(t *testing.T) {
	target := asked(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 5000)) }) // in chunks
	got := Open(t.Context(), target, 4, 100, time.Second)
	if got.Requests != 100 || got.Failed != 0 {
		t.Errorf("%+v, want 100 requests", got)
	}
}

func TestAnotherStatusIsAFailureAndToldOf(t *testing.T) {
	target := asked(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	got := Closed(t.Context(), target, 1, 300*time.Millisecond)
	if got.Failed == 0 || got.Failed != got.Requests || got.Error != "status 418" {
		t.Errorf("%+v", got)
	}
}

// speak streams n events and an end.
func speak(n int, end string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for range n {
			fmt.Fprint(w, "data: {}\n\n")
			_ = rc.Flush()
		}
		fmt.Fprint(w, end)
	}
}

func TestTheTokensOfStreamsAndTheGapsBetweenThemAreCounted(t *testing.T) {
	got := Streams(t.Context(), asked(t, speak(5, "data: [DONE]\n\n")), 2, 500*time.Millisecond)
	if got.Failed != 0 || got.Tokens < 10 || got.GapP99 <= 0 {
		t.Errorf("%+v", got)
	}
}

func TestAStreamThatEndsWithoutItsEndIsAFailure(t *testing.T) {
	got := Streams(t.Context(), asked(t, speak(5, "")), 1, 5*time.Second)
	if got.Failed != 1 || !strings.Contains(got.Error, "unexpected EOF") {
		t.Errorf("%+v", got)
	}
}

func TestStreamsAreHeldOpenUntilTheyAreClosed(t *testing.T) {
	var open atomic.Int64
	target := asked(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		fmt.Fprint(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := Hold(ctx, target, 20, 4)
	if h.Open() != 20 || h.Failed != 0 || open.Load() != 20 {
		t.Errorf("%d are open, %d failed (%s), the server has %d", h.Open(), h.Failed, h.Error, open.Load())
	}
	h.Close()
	for open.Load() > 0 {
		select {
		case <-ctx.Done():
			t.Fatal("hangs: the streams' end")
		default:
		}
	}
}

func TestQuantilesAreOfSortedTimes(t *testing.T) {
	times := []time.Duration{time.Microsecond, 2 * time.Microsecond, 3 * time.Microsecond, 4 * time.Microsecond}
	if Quantile(times, 0.5) != 3 || Quantile(times, 0.99) != 4 || Quantile(nil, 0.5) != 0 {
		t.Errorf("%v %v", Quantile(times, 0.5), Quantile(times, 0.99))
	}
}
