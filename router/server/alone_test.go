package server

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// dying is the script of a worker that is lost before the first token.
func dying(_ *workerv1.GenerateRequest, s out) error {
	if err := send(s, accepted); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "gone")
}

// answerOf sends a request in a goroutine, and returns where its status and body come to.
func answerOf(t *testing.T, l *listener) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		resp, err := l.chat(ask)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- resp.Status + " " + body(t, resp)
	}()
	return got
}

func TestARequestWhoseOnlyWorkerIsLostBeforeItsAnswerWaitsForTheNextOnce(t *testing.T) {
	h := newHerd(t, 1, 1, 1)
	h.settle()
	l, w := h.routers[0], h.workers["w-0"]
	for name, c := range map[string]struct {
		then script
		want string
	}{
		"the next one answers":     {nil, http.StatusText(http.StatusOK)},
		"the next one is lost too": {dying, "worker_lost"},
	} {
		t.Run(name, func(t *testing.T) {
			w.change(func() { w.script, w.calls = dying, 0 })
			got := answerOf(t, l)
			l.eventually("it waits", func() bool { return len(got) > 0 || l.fleet.gate.Stats("uid-m").Held == 1 })
			w.change(func() { w.script = c.then })
			h.pass(func() { h.restart(w, false) })
			h.pass(nothing)
			h.pass(nothing)
			if answer := <-got; !strings.Contains(answer, c.want) {
				t.Errorf("got %s", answer)
			}
			if calls, _ := w.count(); calls != 2 {
				t.Errorf("it ran %d times", calls)
			}
			h.pass(nothing)
			h.pass(nothing)
		})
	}
}
