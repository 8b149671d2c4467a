package lines

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file keeps each write. Where gate is not nil, a write waits until somebody receives from it.
type file struct {
	gate chan struct{}
	err  error

	mu     sync.Mutex
	writes []string
}

func (f *file) Write(p []byte) (int, error) {
	if f.gate != nil {
		f.gate <- struct{}{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, string(p))
	return len(p), f.err
}

func (f *file) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.writes, "")
}

func log(t *testing.T, w *Writer, line string) {
	t.Helper()
	if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("Write: %d, %v; want %d bytes taken", n, err, len(line))
	}
}

func want(t *testing.T, f *file, writes ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.writes, writes) {
		t.Errorf("writes: %q, want %q", f.writes, writes)
	}
}

func TestLinesGoOutTogetherWhenTheFirstHasWaitedLongEnough(t *testing.T) {
	f, c := &file{}, clocktesting.NewFakeClock(time.Unix(0, 0))
	w := New(f, c)
	log(t, w, "a\n")
	c.Step(Patience - 1)
	log(t, w, "b\n")
	want(t, f)
	c.Step(1)
	want(t, f, "a\nb\n")
	log(t, w, "c\n")
	c.Step(Patience)
	want(t, f, "a\nb\n", "c\n")
}

func TestAClockIsNotAskedWhileNothingWaits(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := New(&file{}, c)
	log(t, w, "a\n")
	c.Step(Patience)
	if c.HasWaiters() {
		t.Error("there is a timer, and no line")
	}
}

func TestManyLinesDoNotWait(t *testing.T) {
	f := &file{}
	w := New(f, clocktesting.NewFakeClock(time.Unix(0, 0)))
	line := strings.Repeat("x", 1023) + "\n"
	for range enough / len(line) {
		log(t, w, line)
	}
	want(t, f, strings.Repeat(line, enough/len(line)))
}

func TestALineThatIsLongerThanTheBufferGoesOutWhole(t *testing.T) {
	f := &file{}
	w := New(f, clocktesting.NewFakeClock(time.Unix(0, 0)))
	long := strings.Repeat("x", 5*enough) + "\n"
	log(t, w, "a\n")
	log(t, w, long)
	want(t, f, "a\n"+long)
	if n := cap(w.waiting) + cap(w.spare); n > 4*enough {
		t.Errorf("%d bytes are kept after a long line", n)
	}
}

func TestNoLineWaitsAfterClose(t *testing.T) {
	f := &file{}
	w := New(f, clocktesting.NewFakeClock(time.Unix(0, 0)))
	log(t, w, "a\n")
	w.Close()
	log(t, w, "b\n")
	want(t, f, "a\n", "b\n")
}

func TestAFileThatRefusesLinesStopsNobody(t *testing.T) {
	f := &file{err: errors.New("no space left on device")}
	w := New(f, clocktesting.NewFakeClock(time.Unix(0, 0)))
	log(t, w, "a\n")
	w.Flush()
	log(t, w, "b\n")
	w.Flush()
	want(t, f, "a\n", "b\n")
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestLinesThatComeWhileTheFileIsWrittenDoNotWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{gate: make(chan struct{})}
		w := New(f, clock.RealClock{})
		log(t, w, "a\n")
		go w.Flush()
		synctest.Wait()
		log(t, w, "b\n") // returns
		<-f.gate
		synctest.Wait()
		want(t, f, "a\n")
		pass(Patience)
		<-f.gate
		synctest.Wait()
		want(t, f, "a\n", "b\n")
	})
}

func TestLinesWhoseTimeComesWhileTheFileIsWrittenFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{gate: make(chan struct{})}
		w := New(f, clock.RealClock{})
		log(t, w, "a\n")
		pass(Patience)
		synctest.Wait() // a is being written
		log(t, w, "b\n")
		pass(Patience)
		synctest.Wait()
		log(t, w, "c\n") // it has time, and goes with b
		<-f.gate
		<-f.gate
		synctest.Wait()
		want(t, f, "a\n", "b\nc\n")
	})
}

func TestFlushReturnsWhenLinesThatAnotherWritesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{gate: make(chan struct{})}
		w := New(f, clock.RealClock{})
		log(t, w, "a\n")
		go w.Flush()
		synctest.Wait()
		flushed := false
		go func() { w.Flush(); flushed = true }()
		synctest.Wait()
		if flushed {
			t.Error("Flush returned before the line was written")
		}
		<-f.gate
		synctest.Wait()
		if !flushed {
			t.Error("Flush did not return")
		}
	})
}

func TestAFileThatTakesNothingHoldsUpThoseWhoLogAndLosesNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{gate: make(chan struct{})}
		w := New(f, clock.RealClock{})
		line := strings.Repeat("x", 1023) + "\n"
		const all = 200
		taken := 0
		go func() {
			for range all {
				log(t, w, line)
				taken++
			}
		}()
		pass(time.Hour)
		synctest.Wait()
		if most := 2*enough/len(line) + 1; taken > most {
			t.Errorf("%d lines are held, want %d at most", taken, most)
		}
		f.letGo()
		pass(Patience)
		synctest.Wait()
		if got := f.text(); got != strings.Repeat(line, all) {
			t.Errorf("%d bytes are written, want %d", len(got), all*len(line))
		}
		close(f.gate)
	})
}

// letGo lets all writes pass until gate is closed.
func (f *file) letGo() {
	go func() {
		for range f.gate {
		}
	}()
}

func TestLinesOfManyStayWholeAndInTheOrderOfEach(t *testing.T) {
	f := &file{}
	w := New(f, clock.RealClock{})
	const writers, each = 8, 2000
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for j := range each {
				log(t, w, fmt.Sprintf("%d %d\n", i, j))
				if j%100 == 0 {
					w.Flush()
				}
			}
		})
	}
	group.Wait()
	w.Close()
	var next [writers]int
	for line := range bytes.Lines([]byte(f.text())) {
		var i, j int
		if _, err := fmt.Sscanf(string(line), "%d %d\n", &i, &j); err != nil || j != next[i] {
			t.Fatalf("line %q of %v: %v", line, next, err)
		}
		next[i]++
	}
	if next != [writers]int{each, each, each, each, each, each, each, each} {
		t.Errorf("lines of each: %v, want %d", next, each)
	}
}
