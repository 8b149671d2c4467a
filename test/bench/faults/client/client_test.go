package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a router that answers by f.
func serve(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(f)
	c := New("r", s.URL, &history.Log{})
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c
}

const word = `data: {"choices":[{"index":0,"delta":{"content":"w0"}}]}` + "\n\n"

func TestWhatComesOfARequestIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		stream  bool
		status  int
		body    string
		outcome history.Outcome
		code    string
		broken  bool
		events  int
	}{
		"a stream that is whole": {true, 200, word + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n",
			history.Completed, "", false, 3},
		"a stream that ends by an error": {true, 200, word + `data: {"error":{"message":"m","type":"server_error","code":"worker_lost"}}` + "\n\n",
			history.Failed, "worker_lost", false, 2},
		"a stream that ends without an end": {true, 200, word, history.Failed, "", true, 1},
		"a stream with what is no JSON":     {true, 200, "data: {\n\n", history.Failed, "", true, 0},
		"what follows the end":              {true, 200, "data: [DONE]\n\n" + word, history.Completed, "", false, 2},
		"a body": {false, 200, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"w0"}}],"usage":{"completion_tokens":1}}`,
			history.Completed, "", false, 1},
		"a refusal":              {true, 429, `{"error":{"message":"m","type":"rate_limit_error","code":null}}`, history.Failed, "rate_limit_error", false, 0},
		"a body that is no JSON": {false, 200, "{", history.Failed, "", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(c.status)
				_, _ = fmt.Fprint(w, c.body)
			})
			got := x.Do(t.Context(), Request{Model: "m", Words: 1, Stream: c.stream})
			if got.Outcome() != c.outcome || got.Code != c.code || (got.Broken != "") != c.broken || len(got.Events) != c.events || got.Status != c.status || got.RetryAfter != 7 {
				t.Errorf("got %+v", got)
			}
			if h := x.Log.History(); len(h.Clients) != 1 || h.Clients[0].ID != got.ID {
				t.Errorf("the log has %+v", h.Clients)
			}
		})
	}
}

func TestAClientThatGoesIsNoFailure(t *testing.T) {
	left := make(chan struct{})
	x := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, word)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	got := x.Do(t.Context(), Request{Model: "m", Words: 1, Stream: true, Each: func(history.Event) bool { return false }})
	<-left
	if got.Outcome() != history.Cancelled || !got.Gone || got.Broken != "" {
		t.Errorf("got %+v", got)
	}
}

func TestARouterThatIsNotThereIsABrokenRequest(t *testing.T) {
	x := New("r", "http://127.0.0.1:1", &history.Log{})
	got := x.Do(t.Context(), Request{Model: "m", Words: 1})
	if got.Status != 0 || got.Outcome() != history.Failed || got.Broken != "connection refused" {
		t.Errorf("got %+v", got)
	}
}

func TestAClientThatIsRefusedComesBackWhenItWasToldTo(t *testing.T) {
	tries := 0
	x := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, `{"error":{"type":"t"}}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"w0"}}]}`)
	})
	var got []history.Client
	x.persist(t.Context(), Request{Model: "m", Words: 1}, Patience{Tries: 5}, func(c history.Client) { got = append(got, c) })
	if len(got) != 3 || got[0].Status != 503 || got[2].Outcome() != history.Completed || got[0].ID == got[1].ID || got[1].ID == got[2].ID {
		t.Errorf("got %+v", got)
	}
}
