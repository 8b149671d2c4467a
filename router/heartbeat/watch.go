package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// maxReport is the longest report that is read, in bytes.
const maxReport = 1 << 20

// errStopped ends a watcher's loop.
var errStopped = errors.New("stopped")

// watcher listens to one candidate, in one goroutine: it holds a Watch stream, opens another when that breaks or falls
// silent, and tells the detector. A broken stream is opened again after at most half an interval, a silent one at once,
// so that a worker is heard soon after it is back.
type watcher struct {
	table   *Table
	clock   clock.Clock
	log     logr.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	changed chan struct{} // holds a token when the config has changed

	address string // the candidate's

	mu        sync.Mutex // guards what follows; held for field access only
	candidate Candidate
	config    Config
	detector  *Detector
	report    *workerv1.Report
	suspect   bool
}

func newWatcher(t *Table, c Candidate, config Config) *watcher {
	w := &watcher{
		table: t, clock: t.options.Clock,
		log:       t.options.Log.WithValues("worker", c.Pod, "model", c.Model),
		changed:   make(chan struct{}, 1),
		address:   c.Address,
		candidate: c, config: config,
	}
	w.ctx, w.cancel = context.WithCancel(t.ctx)
	w.detector = NewDetector(config, Expect{ModelUID: c.ModelUID, PodUID: c.PodUID}, w.clock.Now())
	return w
}

// same reports whether c is the candidate that w listens to, and takes the model's name from it, which may change. A pod
// that was once said to terminate does.
func (w *watcher) same(c Candidate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.candidate
	before.Model, c.Terminating = c.Model, before.Terminating
	if c != before {
		return false
	}
	w.candidate = c
	return true
}

func (w *watcher) terminate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.candidate.Terminating = true
	w.detector.Terminate()
}

func (w *watcher) configure(c Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = c
	w.detector.Configure(c)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// suspicion marks the instance as suspect and reports whether that is news.
func (w *watcher) suspicion(instance string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.suspect || w.detector.Instance() != instance {
		return false
	}
	w.suspect = true
	return true
}

// worker is what is known now.
func (w *watcher) worker() Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Worker{
		Member: Member{
			Candidate: w.candidate, State: w.detector.State(), Instance: w.detector.Instance(),
			Revision: w.report.GetRevision(), Loaded: w.report.GetModelLoaded(), Suspect: w.suspect,
		},
		Report: w.report, LastError: w.detector.Why(),
	}
	if w.report != nil {
		out.ReportedAt = w.detector.heard
	}
	return out
}

// run listens until the watcher is cancelled.
func (w *watcher) run() {
	defer w.cancel()
	for wait := time.Duration(0); ; {
		heard, err := w.listen(wait)
		if errors.Is(err, errStopped) {
			return
		}
		wait = w.backoff(wait, heard, err)
	}
}

// backoff is how long to wait before the next stream: nothing after silence or a change of the interval, else a
// sixteenth of an interval, doubled up to a half.
func (w *watcher) backoff(last time.Duration, heard bool, err error) time.Duration {
	if err == nil {
		return 0
	}
	interval := w.settings().Interval
	if heard || last == 0 {
		last = interval / 32
	}
	return min(2*last, interval/2)
}

// listen waits, opens a stream and follows it. It returns whether anything was heard, and why the stream ended: nil
// when the watcher itself gave it up because of silence or a new interval.
func (w *watcher) listen(wait time.Duration) (heard bool, err error) {
	for start := w.clock.Now().Add(wait); w.clock.Now().Before(start); {
		if _, what := w.next(start, nil); what == stopped {
			return false, errStopped
		}
	}
	opened := w.settings()
	events, stop := w.open(opened.Interval)
	defer stop()
	last := w.clock.Now()
	for {
		silent := last.Add(w.settings().silence())
		e, what := w.next(silent, events)
		switch {
		case what == stopped:
			return heard, errStopped
		case what == reconfigured && w.settings().Interval != opened.Interval:
			return heard, nil
		case what == due && !w.clock.Now().Before(silent):
			return heard, nil
		case what == happened && e.err != nil:
			w.update(func(now time.Time) { w.detector.Broken(now, explain(e.err)) })
			return heard, e.err
		case what == happened:
			heard, last = true, w.clock.Now()
			w.hear(e.report)
		}
	}
}

// outcome is what next waited for.
type outcome int

const (
	stopped outcome = iota
	reconfigured
	happened
	due
)

// next waits for an event, a change of the config, or limit; it looks for silence whenever that is due.
func (w *watcher) next(limit time.Time, events <-chan event) (event, outcome) {
	w.mu.Lock()
	until := w.detector.Next()
	w.mu.Unlock()
	if limit.Before(until) {
		until = limit
	}
	if left := until.Sub(w.clock.Now()); left > 0 {
		timer := w.clock.NewTimer(left)
		defer timer.Stop()
		select {
		case <-w.ctx.Done():
			return event{}, stopped
		case <-w.changed:
			return event{}, reconfigured
		case e := <-events:
			return e, happened
		case <-timer.C():
		}
	}
	w.update(func(now time.Time) { w.detector.Tick(now) })
	return event{}, due
}

func (w *watcher) settings() Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config
}

// hear takes a report.
func (w *watcher) hear(r *workerv1.Report) {
	w.update(func(now time.Time) {
		before := w.detector.Instance()
		w.detector.Report(now, r)
		w.report = r
		if w.detector.Why() == "" || w.detector.Instance() != before { // what was said was said of another
			w.suspect = false
		}
	})
}

// update runs f under the lock, then publishes and logs what it changed.
func (w *watcher) update(f func(now time.Time)) {
	before := w.worker()
	w.mu.Lock()
	f(w.clock.Now())
	w.mu.Unlock()
	after := w.worker()
	if after.Member == before.Member || w.ctx.Err() != nil {
		return
	}
	if after.State != before.State {
		w.log.Info("the verdict on a worker changes", "from", before.State.String(), "to", after.State.String(),
			"instance", after.Instance, "why", after.LastError)
	}
	w.table.publish()
}

// event is a report, or why there will be none.
type event struct {
	report *workerv1.Report
	err    error
}

// open starts a stream on a connection of its own: after a partition, a connection that was there before may stay
// silent much longer than a new one takes. stop ends it and waits for its reader.
func (w *watcher) open(interval time.Duration) (events <-chan event, stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	out := make(chan event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := read(ctx, w.address, interval, w.table.options, out)
		select {
		case out <- event{err: err}:
		case <-ctx.Done():
		}
	}()
	return out, func() { cancel(); <-done }
}

// read sends every report of a new stream to out, until the stream or ctx ends.
func read(ctx context.Context, address string, interval time.Duration, o Options, out chan<- event) error {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(o.Credentials),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReport)))
	if err != nil {
		return fmt.Errorf("watch %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{
		IntervalMilliseconds: uint32(interval.Milliseconds()),
	})
	for err == nil {
		var r *workerv1.Report
		if r, err = stream.Recv(); err == nil {
			select {
			case out <- event{report: r}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return err
}

// explain is the one line that people see.
func explain(err error) string {
	if errors.Is(err, io.EOF) {
		return "the worker ended the stream of reports"
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
