package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnAskerAsksUntilItIsStoppedAndKnowsWhoseAnswerCameFirst(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1); n <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		} else if want := fmt.Sprint("a-", n-1); r.Header.Get(telemetry.HeaderRequestID) != want {
			t.Errorf("request %d is called %q, want %q", n, r.Header.Get(telemetry.HeaderRequestID), want)
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"The\"}}]}\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	c := &asker{url: server.URL + "/v1", model: "m", name: "a", http: server.Client()}
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.ask(ctx) }()
	if err := answers(t.Context(), c, begun); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	if done, saw := c.since(time.Now()); done {
		t.Errorf("an answer of the future: %s", saw)
	}
	if first, refused := c.first(map[string]bool{"a-2": true, "a-3": true}); !first.Equal(c.earliest()) || refused != 2 {
		t.Errorf("the first answer began at %v, the earliest at %v, after %d refusals", first, c.earliest(), refused)
	}
	if first, refused := c.first(nil); !first.IsZero() || refused != 2 {
		t.Errorf("nobody served, and yet %v after %d", first, refused)
	}
}
