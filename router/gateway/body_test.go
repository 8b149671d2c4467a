package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
)

func TestBodiesOfAllRequestsTogetherAreBounded(t *testing.T) {
	large := strings.Replace(ask, "SECRET", strings.Repeat("x", 20<<10), 1)
	for name, c := range map[string]struct {
		body   string
		length bool
	}{
		"a body with a length":    {large, true},
		"a body without a length": {large, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, says("hi"))
			r.cfg.MaxBodyBytesTotal = 64 << 10
			r.held.Store(60 << 10) // others hold it
			send := func() *httptest.ResponseRecorder {
				req := httptest.NewRequest("POST", pathChat, struct{ *strings.Reader }{strings.NewReader(c.body)})
				req.Header.Set("Content-Type", "application/json")
				if c.length {
					req.ContentLength = int64(len(c.body))
				}
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				return w
			}
			w := send()
			_, kind, _, code := errorObject(t, w.Body.Bytes())
			if w.Code != 503 || kind != "service_unavailable_error" || code != "server_is_overloaded" || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %s %s, headers %v", w.Code, kind, code, w.Header())
			}
			if got := r.held.Load(); got != 60<<10 {
				t.Errorf("%d bytes are held after a refusal", got)
			}
			if r.script.count() != 0 || !strings.Contains(r.logged.String(), `"outcome":"busy"`) {
				t.Errorf("a worker was asked, or %s", r.logged)
			}
			r.held.Store(0)
			if w := send(); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if got := r.held.Load(); got != 0 {
				t.Errorf("%d bytes are held after the end", got)
			}
		})
	}
}

func TestABodyIsHeldUntilItsRequestEnds(t *testing.T) {
	for name, last := range map[string]step{
		"with its answer":        {event: Event{Finish: openai.FinishStop}},
		"with the worker's loss": {err: &Fault{Kind: Lost, Worker: "worker-0"}},
		"with a crash":           {crash: true},
	} {
		t.Run(name, func(t *testing.T) {
			may := make(chan struct{})
			last.wait = may
			r := newRig(clock.RealClock{}, play{steps: []step{text("hi"), last}, attempts: 2})
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.do("POST", pathChat, ask)
			}()
			eventually(t, "the call", func() bool { return r.script.count() == 1 })
			if got := r.held.Load(); got < int64(len(ask)) {
				t.Errorf("%d bytes are held while it runs, the body has %d", got, len(ask))
			}
			close(may)
			within(t, "the end", done)
			if got := r.held.Load(); got != 0 {
				t.Errorf("%d bytes are held after the end", got)
			}
		})
	}
}
