package grpcserver

import (
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

func TestRequestsOnOneStreamAreAnsweredAsCallsAre(t *testing.T) {
	r := newRig(t, sim.Options{Text: "a reply"})
	s, err := r.router().GenerateMany(within(t))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(q *workerv1.GenerateRequest) { q.ExpectedInstanceId, q.AttemptId = "i0", "a2" }
	for _, c := range []struct {
		change func(*workerv1.GenerateRequest)
		events string
		code   codes.Code
	}{
		{nil, "accepted a1, text, ended a1", codes.OK},
		{refused, "ended a2", codes.FailedPrecondition},
		{func(q *workerv1.GenerateRequest) { q.AttemptId = "a3" }, "accepted a3, text, ended a3", codes.OK},
	} {
		if err := s.Send(chat(c.change)); err != nil {
			t.Fatal(err)
		}
		var events []string
		text := ""
		for over := false; !over; {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			switch x := m.GetEvent().(type) {
			case *workerv1.GenerateResponse_Accepted:
				events = append(events, "accepted "+x.Accepted.GetAttemptId())
			case *workerv1.GenerateResponse_Delta:
				text += x.Delta.GetText()
			case *workerv1.GenerateResponse_Finish:
				if text == "a reply" {
					events = append(events, "text")
				}
			case *workerv1.GenerateResponse_Ended:
				over = true
				events = append(events, "ended "+x.Ended.GetAttemptId())
				if err := many.Err(x.Ended); grpcstatus.Code(err) != c.code {
					t.Errorf("it ends with %v, want %s", err, c.code)
				}
			}
		}
		if got := strings.Join(events, ", "); got != c.events {
			t.Errorf("there came %s, want %s", got, c.events)
		}
	}
	if lines := r.log.all(); len(lines) != 3 || !strings.Contains(lines[1], `"accepted"=false`) || !strings.Contains(lines[2], `"attempt"="a3"`) {
		t.Errorf("the log is %q", lines)
	}
	if st := r.engine.Stats(); st.Running+st.Waiting != 0 {
		t.Errorf("%d requests are left", st.Running+st.Waiting)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}
