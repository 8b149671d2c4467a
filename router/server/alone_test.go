package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
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
	for name, c := range map[string]struct {
		then script
		want string
	}{
		"the next one answers":     {nil, http.StatusText(http.StatusOK)},
		"the next one is lost too": {dying, "worker_lost"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHerd(t, 1, 1, 1) // one that lost two workers is refused for a while
			h.settle()
			l, w := h.routers[0], h.workers["w-0"]
			w.change(func() { w.script, w.calls = dying, 0 })
			got := answerOf(t, l)
			l.eventually("it waits", func() bool { return len(got) > 0 || l.fleet.gate.Stats("uid-m").Held == 1 })
			if line := l.fleet.waits("uid-m"); line != "waiting for a worker: stage=loaded" { // its worker is in the ring, and suspect
				t.Errorf("its client is told %q", line)
			}
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
		})
	}
}

// TestARequestTakesTwoWorkersAlongAtMostHoweverOftenItWaits loses the only worker with a request, and then the first of all
// three that are there when it runs again.
func TestARequestTakesTwoWorkersAlongAtMostHoweverOftenItWaits(t *testing.T) {
	lost, err := status.New(codes.Unavailable, "gone").WithDetails(&errdetails.ErrorInfo{Reason: workerv1.ReasonEngineLost})
	if err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string]func(*listener) string{
		"an answer": func(l *listener) string { return <-answerOf(t, l) },
		"embeddings": func(l *listener) string {
			code, got := l.embeddings(`{"model":"m","input":["a"]}`)
			return fmt.Sprint(code, got)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHerd(t, 1, 1, 3)
			l, first := h.routers[0], h.workers["w-0"]
			var mu sync.Mutex
			calls, die := 0, make(chan struct{})
			dies := func() error { // the first call at once, the others together
				mu.Lock()
				calls++
				n := calls
				mu.Unlock()
				if n > 1 {
					<-die
				}
				return lost.Err()
			}
			count := func() int { mu.Lock(); defer mu.Unlock(); return calls }
			for _, w := range h.workers {
				w.change(func() {
					w.loading = w != first
					w.embed = dies
					w.script = func(*workerv1.GenerateRequest, out) error { return dies() }
				})
			}
			h.settle()
			got := make(chan string, 1)
			go func() { got <- send(l) }()
			l.eventually("it waits", func() bool { return len(got) > 0 || l.fleet.gate.Stats("uid-m").Held == 1 })
			for _, w := range h.workers {
				w.change(func() { w.loading = false })
			}
			h.pass(func() { h.restart(first, false) })
			for range 3 {
				h.pass(nothing)
			}
			l.eventually("it runs again", func() bool { return len(got) > 0 || count() == 2 })
			if n := l.fleet.board.View("uid-m").Sound(); n != 3 {
				t.Errorf("%d workers are there for it", n)
			}
			close(die)
			if answer := <-got; !strings.Contains(answer, "worker_lost") {
				t.Errorf("got %s", answer)
			}
			if n := count(); n != 2 {
				t.Errorf("%d workers were lost with it", n)
			}
		})
	}
}
