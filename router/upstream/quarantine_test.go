package upstream

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

var update = flag.Bool("update", false, "rewrite transcripts")

// TestQuarantineTranscripts plays, one a line: a time, and
//
//	lost REQUEST INSTANCE [died|lives|answered] [since TIME]
//	                                     an instance was lost with a request, which has just come there, or at that time
//	know INSTANCE died|lives             what is known of an instance from now on
//	settle                               what is known is looked at
//	finished REQUEST                     an answer came to its finish
//	ask REQUEST                          may it run?
func TestQuarantineTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/quarantine", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			q, known := quarantine{requests: map[uint64]*suspicion{}}, map[string]verdict{}
			var b strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				w := strings.Fields(line)
				at, err := time.ParseDuration(w[0])
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%-7s %-28s %s\n", w[0], strings.Join(w[1:], " "), quarantineStep(t, &q, known, time.Unix(1e9, 0).Add(at), w[1:]))
			}
			return b.String()
		})
	})
}

func quarantineStep(t *testing.T, q *quarantine, known map[string]verdict, now time.Time, w []string) string {
	verdicts := map[string]verdict{"died": died, "lives": lives, "answered": answered}
	hash := uint64(len(w[len(w)-1])) // only ask and finished, whose last word is the request
	switch w[0] {
	case "lost":
		began := now
		if i := slices.Index(w, "since"); i > 0 {
			ago, err := time.ParseDuration(w[i+1])
			if err != nil {
				t.Fatal(err)
			}
			began = time.Unix(1e9, 0).Add(ago)
		}
		v := undecided
		if len(w) > 3 {
			v = verdicts[w[3]]
		}
		q.lost(uint64(len(w[1])), w[2], w[2], v, began, now)
	case "know":
		known[w[1]] = verdicts[w[2]]
	case "settle":
		q.settle(now, func(pod, _ string) verdict { return known[pod] })
	case "finished":
		q.acquit(hash)
	case "ask":
		pods, until, yes := q.refuses(hash, now)
		if !yes {
			return "may run"
		}
		return fmt.Sprintf("refused for %s because of %s", until.Sub(now), strings.Join(pods, ", "))
	default:
		t.Fatalf("unknown event %q", w[0])
	}
	return fmt.Sprintf("%d remembered", len(q.requests))
}

func TestTheTableOfSuspicionsIsBounded(t *testing.T) {
	q, now := quarantine{requests: map[uint64]*suspicion{}}, time.Unix(1e9, 0)
	for i := range uint64(3 * maxSuspicions) {
		q.lost(i, "a", "a", died, now, now.Add(time.Duration(i)*time.Millisecond))
		if len(q.requests) > maxSuspicions {
			t.Fatalf("%d are remembered, at most %d may be", len(q.requests), maxSuspicions)
		}
	}
	if q.requests[3*maxSuspicions-1] == nil || q.requests[0] != nil {
		t.Error("the latest was forgotten, or the first is remembered")
	}
}

func TestRequestsAreKnownByAllThatIsRun(t *testing.T) {
	seed := maphash.MakeSeed()
	base := request().Proto
	same := fingerprint(seed, "uid-1", proto.Clone(base))
	if fingerprint(seed, "uid-1", base) != same {
		t.Error("a request and its copy are told apart")
	}
	other := proto.Clone(base).(*workerv1.GenerateRequest)
	other.MaxTokens++
	if fingerprint(seed, "uid-1", other) == same || fingerprint(seed, "uid-2", base) == same || fingerprint(maphash.MakeSeed(), "uid-1", base) == same {
		t.Error("another request, another model or another process is not told apart")
	}
}

func TestIdsAndThePriorityDoNotMakeAnotherRequest(t *testing.T) {
	seed := maphash.MakeSeed()
	base := request().Proto
	want := fingerprint(seed, "uid-1", base)
	for name, change := range map[string]func(*workerv1.GenerateRequest){
		"priority":          func(r *workerv1.GenerateRequest) { r.Priority = -3 },
		"request id":        func(r *workerv1.GenerateRequest) { r.RequestId = "another" },
		"attempt id":        func(r *workerv1.GenerateRequest) { r.AttemptId = "another" },
		"instance":          func(r *workerv1.GenerateRequest) { r.ExpectedInstanceId = "another" },
		"revision":          func(r *workerv1.GenerateRequest) { r.ExpectedRevision = "another" },
		"expected model id": func(r *workerv1.GenerateRequest) { r.ExpectedModelUid = "another" },
	} {
		other := proto.Clone(base).(*workerv1.GenerateRequest)
		change(other)
		before := proto.Clone(other)
		if fingerprint(seed, "uid-1", other) != want {
			t.Errorf("another %s makes another request", name)
		}
		if !proto.Equal(other, before) {
			t.Errorf("%s: the hash changes the request", name)
		}
	}
}

// poison kills each worker that runs it: heartbeats end, or another instance comes.
func poison(f *fleet, how func(i int, w *Worker)) {
	dead := map[int]bool{}
	for i, w := range f.workers {
		w.script = func(_ *workerv1.GenerateRequest, o out) error {
			if err := o.Send(accepted()); err != nil {
				return err
			}
			f.mu.Lock()
			dead[i] = true
			now := which(dead)
			f.mu.Unlock()
			f.sync(func(j int, w *Worker) {
				if slices.Contains(now, j) {
					how(j, w)
				}
			})
			<-o.Context().Done()
			return o.Context().Err()
		}
	}
}

func which(m map[int]bool) (out []int) {
	for i := range m {
		out = append(out, i)
	}
	return out
}

// run runs r and returns how it ends.
func (f *fleet) run(ctx context.Context, r Request) error {
	s, err := f.Generate(ctx, r)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = collect(s, nil)
	return err
}

func TestARequestThatKillsItsWorkersKillsTwoAndIsQuarantined(t *testing.T) {
	f := newFleet(t, 4, whole)
	poison(f, func(_ int, w *Worker) { w.Lost = true })
	if err := f.run(t.Context(), request()); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	for range 3 {
		if err := f.run(t.Context(), request()); !errors.Is(err, ErrQuarantined) {
			t.Fatalf("got %v", err)
		}
	}
	for i, want := range []int{1, 1, 0, 0} {
		if got := len(f.workers[i].seen()); got != want {
			t.Errorf("worker %d was asked %d times, want %d", i, got, want)
		}
	}
	q := f.quarantines[0]
	if len(f.quarantines) != 3 || q.ModelUID != "uid-1" || q.RequestID != "req-1" || !slices.Equal(q.Pods, []string{f.workers[0].Pod, f.workers[1].Pod}) ||
		!q.Until.Equal(f.clock.Now().Add(10*time.Minute)) {
		t.Errorf("told of %+v", f.quarantines)
	}
	for _, w := range f.workers {
		w.script = whole
	}
	other := request()
	other.Proto.MaxTokens++
	if err := f.run(t.Context(), other); err != nil {
		t.Errorf("another request gets %v", err)
	}
	f.clock.Step(10 * time.Minute)
	if err := f.run(t.Context(), request()); err != nil {
		t.Errorf("after ten minutes it gets %v", err)
	}
}

func TestARequestThatKillsBeforeItIsAcceptedIsQuarantinedToo(t *testing.T) {
	f := newFleet(t, 3, whole)
	for _, w := range f.workers[:2] {
		w.script = func(_ *workerv1.GenerateRequest, o out) error {
			go w.kill()
			<-o.Context().Done()
			return o.Context().Err()
		}
	}
	f.lose()
	if err := f.run(t.Context(), request()); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	f.lose(0, 1)
	if err := f.run(t.Context(), request()); !errors.Is(err, ErrQuarantined) || len(f.workers[2].seen()) != 0 {
		t.Errorf("got %v", err)
	}
}

func TestAPlaceThatWasTakenForAQuarantinedRequestIsGivenBack(t *testing.T) {
	f := newFleet(t, 4, whole)
	poison(f, func(_ int, w *Worker) { w.Lost = true })
	if err := f.run(t.Context(), request()); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	r := request()
	place, err := f.board.Place(&r.Place, f.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	q := newSearch(&r.Place, place, r.Proto, 0)
	kept := f.record(q.first)
	q.first = kept
	err = f.seek(&q, func(ticket, bool) (*seat, failure) { t.Error("a worker is asked"); return nil, failure{} })
	if !errors.Is(err, ErrQuarantined) || !slices.Equal(kept.told, []string{"ended"}) {
		t.Errorf("got %v, the place was told %v", err, kept.told)
	}
}

// TestOnlyDeathsCount holds that a request which has ended badly with two workers may run a third time, unless they died.
func TestOnlyDeathsCount(t *testing.T) {
	unavailable := answer(status.Error(codes.Unavailable, "connection reset"), accepted())
	for name, c := range map[string]struct {
		script func(*workerv1.GenerateRequest, out) error
		then   func(f *fleet)
		want   bool // it is refused
	}{
		"other instances take their places": {unavailable, func(f *fleet) {
			f.sync(func(_ int, w *Worker) { w.Instance += "-new" })
		}, true},
		"their heartbeats end": {unavailable, func(f *fleet) { f.lose(0, 1) }, true},
		"nobody knows yet":     {unavailable, func(f *fleet) { f.lose() }, true},
		"only connections broke, as is known in the end": {unavailable, func(f *fleet) {
			f.clock.Step(proofTime)
			f.lose(0, 1)
		}, false},
		"only one of them died": {unavailable, func(f *fleet) { f.lose(0); f.clock.Step(proofTime) }, false},
		"they were told to go": {unavailable, func(f *fleet) {
			f.sync(func(_ int, w *Worker) { w.Draining, w.Lost = true, true })
		}, false},
		"their pods were deleted": {unavailable, func(f *fleet) { f.Sync(nil) }, false},
		"their engines failed":    {answer(status.Error(codes.Internal, "x"), accepted()), func(*fleet) {}, false},
		"their engines failed and are others now": {answer(status.Error(codes.Internal, "x"), accepted()), func(f *fleet) {
			f.sync(func(_ int, w *Worker) { w.Instance += "-new" })
		}, true},
		"their engines were lost and are others now": {answer(engineGone(t)), func(f *fleet) {
			f.sync(func(_ int, w *Worker) { w.Instance += "-new" })
		}, true},
		"they refused it": {answer(status.Error(codes.Unavailable, "drains")), func(f *fleet) { f.lose(0, 1) }, false},
		"they were full":  {answer(status.Error(codes.ResourceExhausted, "full")), func(f *fleet) { f.lose(0, 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, c.script)
			f.workers[2].script = whole
			f.lose()
			if err := f.run(t.Context(), request()); err == nil {
				t.Fatal("it was answered")
			}
			c.then(f)
			for _, w := range f.workers {
				w.script = whole
			}
			if err := f.run(t.Context(), request()); errors.Is(err, ErrQuarantined) != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCopiesOfARequestWhoseWorkersDieTogetherAreNotItsDoing has two clients ask the same of two workers whose node is lost, and
// a third one while these two are tried again.
func TestCopiesOfARequestWhoseWorkersDieTogetherAreNotItsDoing(t *testing.T) {
	f := newFleet(t, 3, stay(accepted()))
	f.lose()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for i := range 2 {
		r := request()
		if i == 1 {
			r.Place.Exclude = []placement.Process{{Pod: f.workers[0].Pod}}
		}
		go func() { ended <- f.run(ctx, r) }()
		eventually(t, "asked", func() bool { return len(f.workers[i].seen()) == 1 })
	}
	f.clock.Step(time.Second)
	f.workers[0].InRing, f.workers[1].InRing = false, false
	f.publish(f.clock.Now())
	f.lose(0, 1)
	eventually(t, "both are tried again", func() bool { return len(f.workers[2].seen()) == 2 })
	f.workers[2].mu.Lock()
	f.workers[2].script = whole
	f.workers[2].mu.Unlock()
	r := request()
	r.Place.Exclude = []placement.Process{{Pod: f.workers[0].Pod}, {Pod: f.workers[1].Pod}}
	if err := f.run(t.Context(), r); err != nil {
		t.Errorf("a third copy gets %v", err)
	}
	cancel()
	<-ended
	<-ended
}

// TestARequestThatKillsAmongOthersKillsTwo has others on each worker, which go on where theirs is lost.
func TestARequestThatKillsAmongOthersKillsTwo(t *testing.T) {
	f := newFleet(t, 4, whole)
	poison(f, func(_ int, w *Worker) { w.Lost = true })
	for _, w := range f.workers {
		kill := w.script
		w.script = func(r *workerv1.GenerateRequest, o out) error {
			if r.GetMinTokens() == 0 {
				return kill(r, o)
			}
			return stay(accepted())(r, o)
		}
	}
	f.lose()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 4)
	for i := range 4 {
		r := request()
		r.Proto.MinTokens = uint32(i + 1)
		for _, w := range f.workers[:i] {
			r.Place.Exclude = append(r.Place.Exclude, placement.Process{Pod: w.Pod})
		}
		go func() { ended <- f.run(ctx, r) }()
		eventually(t, "asked", func() bool { return len(f.workers[i].seen()) == 1 })
	}
	f.clock.Step(time.Second)
	if err := f.run(t.Context(), request()); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	for range 3 {
		if err := f.run(t.Context(), request()); !errors.Is(err, ErrQuarantined) {
			t.Fatalf("got %v", err)
		}
	}
	killed := 0
	for _, w := range f.workers {
		for _, r := range w.seen() {
			if r.GetMinTokens() == 0 {
				killed++
			}
		}
	}
	if killed != 2 {
		t.Errorf("it ran on %d workers", killed)
	}
	cancel()
	for range 4 {
		<-ended
	}
}

func TestADeadlineIsNoDeath(t *testing.T) {
	f := newFleet(t, 2, stay(accepted()))
	for i := range 2 {
		got := make(chan error)
		go func() { got <- f.run(t.Context(), request()) }()
		eventually(t, "called", func() bool { return len(f.workers[0].seen()) == i+1 })
		f.clock.Step(2 * time.Minute)
		if err := <-got; !errors.Is(err, ErrFirstByte) {
			t.Fatalf("got %v", err)
		}
	}
	f.lose(0)
	if f.suspecting() {
		t.Error("a request is suspected")
	}
}

func TestAFinishAcquits(t *testing.T) {
	f := newFleet(t, 3, whole)
	f.workers[0].script = answer(status.Error(codes.Unavailable, "connection reset"), accepted())
	f.lose()
	if err := f.run(t.Context(), request()); err != nil || f.suspecting() {
		t.Errorf("got %v; suspected: %v", err, f.suspecting())
	}
}

func TestWorkersThatWereCutOffAndAreHeardAgainDidNotDie(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := quarantine{requests: map[uint64]*suspicion{}}
	q.lost(7, "a", "a1", died, now, now)
	q.lost(7, "b", "b1", died, now, now.Add(time.Second))
	if _, _, yes := q.refuses(7, now.Add(2*time.Second)); !yes {
		t.Fatal("a request that was lost with two workers is run")
	}
	q.settle(now.Add(4*time.Second), func(string, string) verdict { return died })
	if _, _, yes := q.refuses(7, now.Add(4*time.Second)); !yes {
		t.Error("workers that stay lost have not died")
	}
	q.settle(now.Add(5*time.Second), func(pod, _ string) verdict { // a is back with the same instance
		if pod == "a" {
			return undecided
		}
		return died
	})
	if _, _, yes := q.refuses(7, now.Add(5*time.Second)); yes {
		t.Error("a request is refused for the death of a worker that lives")
	}
}

func TestARefusalNamesTheWorkersThatDiedWhateverComesAfterwards(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := quarantine{requests: map[uint64]*suspicion{}}
	for _, pod := range []string{"a", "b"} {
		q.lost(7, pod, pod, died, now, now)
	}
	for _, pod := range []string{"c", "d"} { // of requests like it that ran at the same time; nothing comes of these
		q.lost(7, pod, pod, undecided, now, now.Add(time.Second))
	}
	later := now.Add(time.Second + proofTime)
	q.settle(later, func(pod, _ string) verdict {
		if pod == "a" || pod == "b" {
			return died
		}
		return undecided
	})
	pods, until, yes := q.refuses(7, later)
	if !yes || !slices.Equal(pods, []string{"a", "b"}) || !until.Equal(now.Add(quarantineTime)) {
		t.Errorf("refused %t for %q until %s", yes, pods, until)
	}
}

func TestInputsThatKillWorkersAreQuarantinedToo(t *testing.T) {
	f := newFleet(t, 3, whole)
	for i, w := range f.workers {
		w.embed = func(ctx context.Context, r *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
			f.sync(func(j int, w *Worker) { w.Lost = j <= i })
			return waits(ctx, r)
		}
	}
	if _, err := f.Embed(t.Context(), texts()); !errors.Is(err, ErrLost) {
		t.Fatalf("got %v", err)
	}
	if _, err := f.Embed(t.Context(), texts()); !errors.Is(err, ErrQuarantined) || len(f.workers[2].embedded()) != 0 {
		t.Errorf("got %v", err)
	}
}
