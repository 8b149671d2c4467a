package phase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	testclock "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a buffer that tells of each line written to it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	told chan string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told <- string(b)
	return l.text.Write(b)
}

func output() *lines { return &lines{told: make(chan string, 100)} }

func TestPhasesRunInOrderAndSayHowLongTheyTook(t *testing.T) {
	c, out := testclock.NewFakeClock(time.Unix(0, 0)), output()
	err := Run(t.Context(), c, out, []Phase{
		{Name: "one", Run: func(_ context.Context, w io.Writer) error {
			c.Step(2 * time.Second)
			_, err := fmt.Fprintln(w, "      at work")
			return err
		}},
		{Name: "two", Run: func(context.Context, io.Writer) error { c.Step(time.Second); return nil }},
	})
	want := "[1/2] one\n      at work\n      done in 2s, 2s so far\n[2/2] two\n      done in 1s, 3s so far\n"
	if err != nil || out.text.String() != want {
		t.Errorf("%v, got\n%s", err, out.text.String())
	}
}

func TestAFailureNamesThePhaseAndWhatToLookAtAndEndsTheRun(t *testing.T) {
	c, out, broken := testclock.NewFakeClock(time.Unix(0, 0)), output(), errors.New("no room")
	err := Run(t.Context(), c, out, []Phase{
		{Name: "one", Look: "df -h", Run: func(context.Context, io.Writer) error { return broken }},
		{Name: "two", Run: func(context.Context, io.Writer) error { t.Error("ran after a failure"); return nil }},
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "phase 1 of 2, one: no room\nlook at: df -h") {
		t.Errorf("error %v", err)
	}
}

func TestASilentPhaseIsBrokenByALineAndABusyOneIsNot(t *testing.T) {
	c, out := testclock.NewFakeClock(time.Unix(0, 0)), output()
	err := Run(t.Context(), c, out, []Phase{{Name: "compile", Run: func(_ context.Context, w io.Writer) error {
		<-out.told // the heading
		for range 2 {
			c.Step(Quiet / 3)
		}
		if _, err := fmt.Fprintln(w, "      busy"); err != nil { // silence starts again here
			return err
		}
		<-out.told
		for range 3 {
			c.Step(Quiet / 3)
		}
		select {
		case line := <-out.told:
			if line != "      still: compile, 25s in this phase\n" {
				t.Errorf("line %q", line)
			}
		case <-time.After(time.Minute):
			t.Error("no line in a minute")
		}
		return nil
	}}})
	if err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.text.String(), "still:"); n != 1 {
		t.Errorf("%d lines of silence in\n%s", n, out.text.String())
	}
}
