package heartbeat

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
)

// wire carries connections to a worker, until it is cut: then bytes, and the ends of connections, stay where they are, as
// behind a filter that drops packets, and come through when it is healed.
type wire struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	change *sync.Cond
	cut    [2]bool // by direction
	closed bool
	conns  []net.Conn
}

const (
	toWorker = iota
	toRouter
)

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target}
	w.change = sync.NewCond(&w.mu)
	w.running.Go(w.serve)
	t.Cleanup(w.close)
	return w
}

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.carry(near) })
	}
}

// carry connects near to the worker.
func (w *wire) carry(near net.Conn) {
	if !w.keep(near) || !w.pass(toWorker) {
		return
	}
	far, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = near.Close()
		return
	}
	if !w.keep(far) {
		return
	}
	w.running.Go(func() { w.pump(far, near, toRouter) })
	w.pump(near, far, toWorker)
}

// pump copies one direction, and ends the connection when that ends.
func (w *wire) pump(from, to net.Conn, direction int) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if !w.pass(direction) {
			return
		}
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// keep remembers a connection, to close it at the end; it reports whether that has not come yet.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	if w.closed {
		_ = c.Close()
	}
	return !w.closed
}

// pass waits while the direction is cut; it reports whether the wire is there still.
func (w *wire) pass(direction int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut[direction] && !w.closed {
		w.change.Wait()
	}
	return !w.closed
}

func (w *wire) set(toWorkerIsCut, toRouterIsCut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = [2]bool{toWorkerIsCut, toRouterIsCut}
	w.change.Broadcast()
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.change.Broadcast()
	w.mu.Unlock()
	w.running.Wait()
}

func TestAfterAPartitionTheMembersAreThoseOfBefore(t *testing.T) {
	const lost = 1
	for name, cut := range map[string][2]bool{
		"both ways, as by a worker that is stopped": {toWorker: true, toRouter: true},
		"only from the worker to the router":        {toRouter: true},
	} {
		t.Run(name, func(t *testing.T) {
			var wires []*wire
			p := newPackBehind(t, testr.New(t), 4, func(_ int, address string) string {
				w := newWire(t, address)
				wires = append(wires, w)
				return w.listener.Addr().String()
			})
			before := p.Snapshot().Models["uid-1"]
			wires[lost].set(cut[toWorker], cut[toRouter])
			p.loses(t, lost)
			for range 26 { // 30 s in all
				p.beat(t, lost)
				p.ends(lost, 9, Failed) // what ran there ends now; the detector has judged that already
			}
			wires[lost].set(false, false)
			healed := p.clock.Now()
			p.heardAt(t, podOf(lost))
			p.beat(t)
			p.becomes(t, lost, "came back", func(m Member) bool { return m.State == Up })
			if took := p.clock.Now().Sub(healed); took > 2500*time.Millisecond {
				t.Errorf("back after %s", took)
			}
			for i, m := range p.Snapshot().Models["uid-1"] {
				if m != before[i] {
					t.Errorf("%s was %+v, is %+v", m.Pod, before[i], m)
				}
			}
			p.Close()
			p.only(t, lost)
		})
	}
}

// loses lets 4 s pass in which one worker is silent: it is lost 3.5 s after its last report.
func (p *pack) loses(t *testing.T, lost int) {
	t.Helper()
	for half := 1; half <= 8; half++ {
		p.clock.Step(500 * time.Millisecond)
		if half%2 == 0 {
			p.report(t, lost)
			continue
		}
		failures := (half - 1) / 2 // at 1.5, 2.5 and 3.5 s
		p.until(t, podOf(lost), "failed", func(w Worker) bool {
			return failures == 0 || strings.HasPrefix(w.LastError, "no report for "+(time.Duration(half)*500*time.Millisecond).String())
		})
		if half < 7 {
			if m := p.member(t, lost); m.State != Up {
				t.Fatalf("%s after %d half seconds", m.State, half)
			}
		}
	}
	p.becomes(t, lost, "was lost", func(m Member) bool { return m.State == Lost })
}

// only reports an error for each snapshot since all were in the ring in which another than one worker is out.
func (p *pack) only(t *testing.T, lost int) {
	t.Helper()
	close(p.seen)
	all := false
	for s := range p.seen {
		up := 0
		for i, m := range s.Models["uid-1"] {
			if m.State == Up && !m.Ejected {
				up++
			} else if all && i != lost {
				t.Errorf("%s is %s", m.Pod, m.State)
			}
		}
		all = all || up == len(p.workers)
	}
}
