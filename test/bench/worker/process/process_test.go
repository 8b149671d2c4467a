package process

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hangs = 60 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, script string, line func(string)) *Process {
	t.Helper()
	p, err := Start(within(t), Spec{Path: "/bin/sh", Args: []string{"-c", script}, Line: line})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	over := time.After(hangs)
	for !done() {
		select {
		case <-over:
			t.Fatalf("hangs: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAProcessEndsWithAllThatItStarted(t *testing.T) {
	child := make(chan int, 1)
	p := start(t, "sleep 600 & echo $!; wait", func(line string) {
		pid, _ := strconv.Atoi(line)
		child <- pid
	})
	pid := <-child
	p.Stop()
	until(t, "the child's end", func() bool { return pid > 0 && gone(pid) })
}

// gone reports whether a process runs no more; the machine's first process may not have buried it yet.
func gone(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestTheProcessorTimeIsTheProcesss(t *testing.T) {
	p := start(t, "while :; do :; done", nil)
	until(t, "ten milliseconds of work", func() bool {
		used, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		return used > 10*time.Millisecond
	})
	p.Stop()
	if used, err := p.CPU(); err == nil {
		t.Errorf("a process that has ended has used %s", used)
	}
}

func TestLinesComeWholeAndInOrder(t *testing.T) {
	var got []string
	p := start(t, `printf 'a\nb'; printf 'c\n\nd\n'; printf rest`, func(line string) { got = append(got, line) })
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "bc", "", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAFailureHasTheLastLines(t *testing.T) {
	err := start(t, "yes no | head -5000; echo that was all >&2; exit 3", nil).Wait()
	if err == nil || !strings.HasSuffix(err.Error(), "that was all") || len(err.Error()) > keep+100 {
		t.Errorf("%v", err)
	}
}

func TestAFreePortCanBeTaken(t *testing.T) {
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheLoadIsANumber(t *testing.T) {
	if load, err := Load(); err != nil || load < 0 {
		t.Errorf("%v, %v", load, err)
	}
}
