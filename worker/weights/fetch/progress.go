package fetch

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Stage is what is being done.
type Stage string

// The stages, in order. Waiting takes Fetching's place while another process fetches the same file.
const (
	Listing   Stage = "Listing"
	Waiting   Stage = "Waiting"
	Fetching  Stage = "Fetching"
	Verifying Stage = "Verifying"
	Unpacking Stage = "Unpacking"
	Ready     Stage = "Ready"
)

// Progress is how far Ensure has come. It holds no credential.
type Progress struct {
	Stage Stage
	// File is the name of the file that it is about; empty: of all.
	File string
	// Done of Total bytes are there, over all files. Total is 0 until it is known.
	Done, Total int64
	// BytesPerSecond over the last ten seconds.
	BytesPerSecond int64
	// Left is how long it will take at that rate; 0: unknown.
	Left time.Duration
	// Note is a sentence about what is out of the ordinary, such as what a source answers and when it is asked again.
	Note string
}

// Times of reports.
const (
	every  = 250 * time.Millisecond
	window = 40 // reports over which the rate is taken
)

// meter counts, and reports at intervals.
type meter struct {
	clock  clock.WithTicker
	report func(Progress)
	end    chan struct{}
	ended  chan struct{}

	mu      sync.Mutex // guards the rest; report is not called with it held
	p       Progress
	before  int64 // bytes of the files that are finished
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

func newMeter(c clock.WithTicker, report func(Progress)) *meter {
	m := &meter{clock: c, report: report, end: make(chan struct{}), ended: make(chan struct{}), p: Progress{Stage: Listing}}
	go m.run()
	return m
}

func (m *meter) run() {
	defer close(m.ended)
	if m.report == nil {
		return
	}
	t := m.clock.NewTicker(every)
	defer t.Stop()
	last := Progress{}
	for {
		if p := m.now(); p != last {
			last = p
			m.report(p)
		}
		select {
		case <-t.C():
		case <-m.end:
			return
		}
	}
}

// stop ends the reports; the last one says that all is there, or how far it came.
func (m *meter) stop(ready bool) {
	close(m.end)
	<-m.ended
	if m.report == nil {
		return
	}
	p := m.now()
	if ready {
		p = Progress{Stage: Ready, Done: p.Total, Total: p.Total, Note: p.Note}
	}
	m.report(p)
}

// now takes a sample and returns the state with its rate.
func (m *meter) now() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	if n := len(m.samples); n > 0 && m.samples[n-1].done > m.p.Done {
		m.samples = m.samples[:0] // it began again
	}
	m.samples = append(m.samples, sample{now, m.p.Done})
	if len(m.samples) > window+1 {
		m.samples = m.samples[1:]
	}
	p := m.p
	first := m.samples[0]
	if d := now.Sub(first.at); d > 0 {
		p.BytesPerSecond = int64(float64(p.Done-first.done) / d.Seconds())
	}
	if p.BytesPerSecond > 0 && p.Total > p.Done {
		p.Left = (time.Duration(float64(p.Total-p.Done)/float64(p.BytesPerSecond)*1000) * time.Millisecond).Round(time.Second)
	}
	return p
}

// begin starts a count of total bytes.
func (m *meter) begin(stage Stage, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Stage, m.p.Done, m.p.Total, m.before = stage, 0, total, 0
	m.samples = append(m.samples[:0], sample{m.clock.Now(), 0}) // what took its time before says nothing of the rate
}

// file says which file is worked on, and that so much of it is there.
func (m *meter) file(stage Stage, name string, there int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Stage, m.p.File, m.p.Done = stage, name, m.before+there
}

// add counts bytes of the file.
func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done += n
}

// finished counts a whole file.
func (m *meter) finished(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before += bytes
	m.p.Done = m.before
}

// note says what is out of the ordinary; empty: nothing any more.
func (m *meter) note(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Note = s
}

// done returns how far it has come within the file.
func (m *meter) within() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.p.Done - m.before
}
