package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// answers are what is told in pieces. None of them has a border of tokens where it is convenient.
var answers = map[string]*script{
	"plain text":                    {pieces: []string{"Once", " upon", " a", " time", "."}},
	"characters over tokens":        {pieces: []string{"a", "\xf0\x9f", "\x90", "\xa7b", "\xe2", "\x82\xac", "é", "\xc3", "\xa9"}},
	"a stop string over tokens":     {pieces: []string{"ok\nU", "ser", " x\n", "Us", "er:", " no"}, stop: []string{"\nUser:"}},
	"a stop string that never is":   {pieces: []string{"a\n", "U", "s", "er", "s\n", "U"}, stop: []string{"\nUser:"}},
	"as many tokens as are wanted":  {pieces: []string{"a", "b\n", "c", "d", "e"}, stop: []string{"\n\n"}, most: 2},
	"thinking first":                {pieces: []string{"hm", " so", "yes", "", "!"}, thinks: 2},
	"nothing shown for a while":     {pieces: []string{"", "", "a", "", "", "b"}},
	"an engine that does not count": {pieces: []string{"a", "b", "c", "d"}, uncounted: true},
	"an engine without token ids":   {pieces: []string{"a", "b", "c", "d"}, byText: true, uncounted: true, thinks: 1},
}

// dying is a first worker that ends in the middle, and a client that reads meanwhile.
type dying struct {
	t    testing.TB
	f    *fleet
	at   int          // tokens that it makes
	how  loss         // and then
	late bool         // it goes on nevertheless
	told atomic.Int64 // pieces that the client has
}

// loss ends the first worker. It returns what its call ends with.
type loss func(d *dying, o out) error

// losses are the ways in which a worker is lost.
var losses = map[string]loss{
	"its engine is closed": func(*dying, out) error { return status.Error(codes.Unavailable, "engine is closed") },
	"its engine is lost":   func(d *dying, _ out) error { return engineGone(d.t) },
	"its engine fails":     func(*dying, out) error { return status.Error(codes.Internal, "engine failed") },
	"its stream ends":      func(*dying, out) error { return nil },
	"its process is killed": func(d *dying, o out) error {
		go d.f.workers[0].kill()
		<-o.Context().Done()
		return o.Context().Err()
	},
	"its heartbeats end": func(d *dying, o out) error {
		d.f.lose(0)
		<-o.Context().Done()
		return o.Context().Err()
	},
	"its heartbeats end, and it makes the rest": func(d *dying, _ out) error {
		d.f.lose(0)
		return errLate
	},
}

// TestAnAnswerGoesOnWhereverItsWorkerIsLost kills the worker before each token and before the finish.
func TestAnAnswerGoesOnWhereverItsWorkerIsLost(t *testing.T) {
	for what, a := range answers {
		want := a.undisturbed(t)
		for name, how := range losses {
			made := len(want.tokens)
			if a.byText {
				made = len(want.events)
			}
			for at := range made + 1 {
				t.Run(fmt.Sprintf("%s/%s/%d", what, name, at), func(t *testing.T) {
					d := &dying{t: t, f: newFleet(t, 3, a.whole), at: at, how: how}
					d.f.workers[0].script = func(r *workerv1.GenerateRequest, o out) error { return d.play(t, a, r, o) }
					d.check(t, a, want)
				})
			}
		}
	}
}

// TestAnAnswerOfWhichOnlyTheFinishIsMissingIsNotToldTwice kills the worker behind what it held back until the end, for which
// there are no tokens.
func TestAnAnswerOfWhichOnlyTheFinishIsMissingIsNotToldTwice(t *testing.T) {
	for what, a := range answers {
		t.Run(what, func(t *testing.T) {
			want := a.undisturbed(t)
			d := &dying{t: t, f: newFleet(t, 3, a.whole), at: len(want.events)}
			d.f.workers[0].script = func(r *workerv1.GenerateRequest, o out) error { return a.whole(r, &unfinished{t, d, o}) }
			d.check(t, a, want)
		})
	}
}

// unfinished is an answer that ends before its finish, once the client has all the rest.
type unfinished struct {
	t *testing.T
	d *dying
	out
}

func (u *unfinished) Send(e *workerv1.GenerateResponse) error {
	if e.GetFinish() == nil {
		return u.out.Send(e)
	}
	eventually(u.t, "read", func() bool { return int(u.d.told.Load()) == u.d.at })
	return status.Error(codes.Unavailable, "engine is closed")
}

// FuzzResume cuts any text anywhere into tokens, and the answer anywhere.
func FuzzResume(f *testing.F) {
	f.Add("Once upon a time\n\nUser: 🐧 and é", []byte{3, 1, 2}, "\nUser:", byte(4), byte(0), byte(0), byte(0), true)
	f.Add("🐧🐧🐧", []byte{1}, "🐧🐧", byte(6), byte(1), byte(0), byte(0), false)
	f.Add("aaaaab", []byte{2, 1}, "aab", byte(2), byte(2), byte(1), byte(4), false)
	var ways []loss
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		ways = append(ways, losses[name])
	}
	f.Fuzz(func(t *testing.T, text string, cuts []byte, stop string, at, how, thinks, most byte, uncounted bool) {
		text, stop = strings.ToValidUTF8(text[:min(len(text), 60)], "?"), strings.ToValidUTF8(stop[:min(len(stop), 20)], "?")
		a := &script{most: uint32(most), uncounted: uncounted}
		for i := 0; len(text) > 0; i++ {
			n := 1
			if len(cuts) > 0 {
				n = min(int(cuts[i%len(cuts)])%6, len(text)) // some tokens have no text
			}
			if n == 0 && i%2 == 0 {
				n = 1
			}
			a.pieces, text = append(a.pieces, text[:n]), text[n:]
		}
		a.thinks = min(int(thinks), len(a.pieces))
		if stop != "" {
			a.stop = []string{stop}
		}
		want := a.undisturbed(t)
		d := &dying{t: t, f: newFleet(t, 3, a.whole), at: int(at) % (len(want.tokens) + 1), how: ways[int(how)%len(ways)]}
		d.f.workers[0].script = func(r *workerv1.GenerateRequest, o out) error { return d.play(t, a, r, o) }
		d.check(t, a, want)
	})
}

// play makes tokens until the client has all that it will have of them, and then dies.
func (d *dying) play(t *testing.T, a *script, r *workerv1.GenerateRequest, o out) error {
	sent := &counting{out: o}
	err := a.play(r, sent, func(n int) error {
		if n < d.at {
			return nil
		}
		if d.late {
			return nil
		}
		eventually(t, "read", func() bool { return int(d.told.Load()) >= sent.shown })
		err := d.how(d, o)
		switch d.late = errors.Is(err, errLate); {
		case d.late:
			return nil
		case err == nil:
			return errGone
		}
		return err
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

var (
	errGone = errors.New("gone") // ends a call without an error
	errLate = errors.New("late") // goes on with it
)

// counting counts the pieces that a client gets: all, once one shows something.
type counting struct {
	out
	sent, shown int
}

func (c *counting) Send(e *workerv1.GenerateResponse) error {
	if e.GetAccepted() == nil {
		if c.sent++; shows(e) || c.shown > 0 {
			c.shown = c.sent
		}
	}
	return c.out.Send(e)
}

func (d *dying) check(t *testing.T, a *script, want seen) {
	s, err := d.f.Generate(t.Context(), a.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := collect(s, func(n int) { d.told.Store(int64(n)) })
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v;\nwant %+v", got, err, want)
	}
	_ = d.f.workers[0].ended(t)
	if d.late { // what came before the router gave it up counts
		return
	}
	resumes := 0
	if d.shown(want) {
		resumes = 1
	}
	if s.Attempts() != 2 || s.Resumes() != resumes || s.PromptTokens() != promptTokens || s.Worker() != d.f.workers[1].Pod || s.Reason() == "" {
		t.Errorf("%d attempts, %d resumes of %d, prompt of %d tokens, at %s because %q", s.Attempts(), s.Resumes(), resumes, s.PromptTokens(), s.Worker(), s.Reason())
	}
	if len(d.f.retries) != 1 || len(d.f.resumes) != resumes {
		t.Errorf("told of retries %+v, resumes %+v", d.f.retries, d.f.resumes)
	}
	if n := len(d.f.workers[2].seen()); n != 0 {
		t.Errorf("a third worker was asked")
	}
}

// shown reports whether the client had something of want when the worker was lost.
func (d *dying) shown(want seen) bool {
	for _, e := range want.events[:min(d.at, len(want.events))] {
		if !strings.HasSuffix(e, `"" ""`) {
			return true
		}
	}
	return false
}

// tokenwise is an answer that dies after its second token, by UNAVAILABLE, on each of the workers that are named.
func tokenwise(f *fleet, a *script, which ...int) {
	for i, w := range f.workers {
		w.script = a.whole
		if slices.Contains(which, i) {
			w.script = func(r *workerv1.GenerateRequest, o out) error {
				stop := len(r.GetResumeTokens()) + 2
				return a.play(r, o, func(n int) error {
					if n == stop {
						return status.Error(codes.Unavailable, "gone")
					}
					return nil
				})
			}
		}
	}
}

func TestLateBytesOfACallThatWasGivenUpReachNobody(t *testing.T) {
	f := newFleet(t, 2, whole)
	moved, late := make(chan struct{}), make(chan struct{})
	f.workers[0].script = func(r *workerv1.GenerateRequest, o out) error {
		err := answer(nil, accepted(), delta("a"))(r, o)
		<-moved
		for range 3 {
			_ = o.Send(delta("late"))
		}
		close(late)
		return err
	}
	f.workers[1].script = func(r *workerv1.GenerateRequest, o out) error {
		close(moved)
		<-late
		return answer(nil, accepted(), delta("b"), finish())(r, o)
	}
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := collect(s, func(n int) {
		if n == 1 {
			f.lose(0)
		}
	})
	if err != nil || got.text != "ab" {
		t.Errorf("got %+v, %v", got, err)
	}
	if first, second := f.workers[0].seen()[0], f.workers[1].seen()[0]; first.AttemptId == second.AttemptId {
		t.Error("both calls have one attempt id")
	}
}

var story = &script{pieces: []string{"a", "b", "c", "d", "e", "f"}, most: 10}

func TestTheNextWorkerIsToldWhatTheAnswerHas(t *testing.T) {
	f := newFleet(t, 3, whole)
	tokenwise(f, story, 0)
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := collect(s, nil); err != nil || got.text != "abcdef" {
		t.Fatalf("got %+v, %v", got, err)
	}
	first, second := f.workers[0].seen()[0], f.workers[1].seen()[0]
	want := proto.Clone(first).(*workerv1.GenerateRequest)
	want.AttemptId, want.ExpectedInstanceId = second.AttemptId, f.workers[1].Instance
	want.ResumeTokens, want.ResumeText = ids(2), "ab"
	if !proto.Equal(second, want) || first.AttemptId == second.AttemptId {
		t.Errorf("the second worker sees %v, want %v", second, want)
	}
	told := []Retry{{ModelUID: "uid-1", RequestID: "req-1", From: f.workers[0].Pod, To: f.workers[1].Pod, Why: ErrLost.Error(), Tokens: 2}}
	if !slices.Equal(f.resumes, told) || !slices.Equal(f.retries, told) {
		t.Errorf("told of resumes %+v and retries %+v", f.resumes, f.retries)
	}
	results := []placement.Result{f.tickets[0].result, f.tickets[1].result}
	if want := []placement.Result{
		{PromptTokens: promptTokens, CompletionTokens: 2},
		{Answered: true, PromptTokens: promptTokens, CachedTokens: 2, CompletionTokens: 4},
	}; !slices.Equal(results, want) {
		t.Errorf("the places ended with %+v", results)
	}
}

func TestAPlaceForTheRestIsAskedForByWhatIsLeft(t *testing.T) {
	f := newFleet(t, 2, whole)
	tokenwise(f, story, 0)
	var asked []placement.Request
	place := f.place
	f.place = func(q *placement.Request, now time.Time) (ticket, error) {
		asked = append(asked, *q)
		return place(q, now)
	}
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := collect(s, nil); err != nil {
		t.Fatal(err)
	}
	q := asked[1]
	if !q.Resume || q.PromptTokens != promptTokens+2 || q.MaxTokens != 8 || !slices.Equal(q.Exclude, []placement.Process{{Pod: f.workers[0].Pod, Instance: f.workers[0].Instance}}) {
		t.Errorf("asked for %+v", q)
	}
}

func TestAnAnswerThatLostTwoWorkersEnds(t *testing.T) {
	f := newFleet(t, 3, whole)
	tokenwise(f, story, 0, 1)
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := collect(s, nil)
	var on *Error
	if got.text != "abcd" || got.finish != "" || !errors.As(err, &on) || !errors.Is(on, ErrLost) || !strings.Contains(on.Stays, "two workers") {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, again := s.Next(); !errors.Is(again, err) || len(f.workers[2].seen()) != 0 {
		t.Errorf("after the end Next returns %v, or a third worker was asked", again)
	}
}

func TestAnAnswerGoesOnPastWorkersThatTakeNothing(t *testing.T) {
	for name, refusal := range map[string]error{
		"one that drains":     status.Error(codes.Unavailable, "drains"),
		"one with full queue": status.Error(codes.ResourceExhausted, "full"),
		"one that can't":      status.Error(codes.Unimplemented, "no"),
		"one that won't":      status.Error(codes.InvalidArgument, "no"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, whole)
			tokenwise(f, story, 0)
			f.workers[1].script = answer(refusal)
			s, err := f.Generate(t.Context(), story.request())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got, err := collect(s, nil); err != nil || got.text != "abcdef" || !slices.Equal(got.tokens, ids(6)) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestAnAnswerThatNobodyGoesOnWithEndsWithTheLoss(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		then    func(*fleet)
		stays   string
	}{
		"there is no other worker": {1, func(*fleet) {}, "no other worker"},
		"the other can't": {2, func(f *fleet) {
			f.workers[1].Resumes = false
			f.publish(f.clock.Now())
		}, "no other worker"},
		"the other is of another revision": {2, func(f *fleet) {
			f.workers[1].Revision = "r2"
			f.publish(f.clock.Now())
		}, "no other worker"},
		"both others are full": {3, func(f *fleet) {
			f.workers[1].script = answer(status.Error(codes.ResourceExhausted, "full"))
			f.workers[2].script = f.workers[1].script
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, c.workers, whole)
			tokenwise(f, story, 0)
			c.then(f)
			s, err := f.Generate(t.Context(), story.request())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got, err := collect(s, nil)
			var on *Error
			if got.text != "ab" || !errors.As(err, &on) || !errors.Is(on, ErrLost) || on.Worker != f.workers[0].Pod || !strings.Contains(on.Stays, c.stays) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestAnswersThatCannotGoOnSayWhyOrBeginAgain(t *testing.T) {
	call := &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{
		ToolCalls: []*workerv1.ToolCall{{Id: "call-1", Name: "f"}},
	}}}
	long := delta(strings.Repeat("x", 300<<10))
	second := finish()
	second.GetFinish().Choice = 1
	for name, c := range map[string]struct {
		change func(*Request)
		first  []*workerv1.GenerateResponse
		rest   []*workerv1.GenerateResponse
		want   string
	}{
		"resuming is off":    {func(r *Request) { r.Resume = false }, nil, nil, "switched off"},
		"several choices":    {func(r *Request) { r.Proto.Choices = 2 }, nil, []*workerv1.GenerateResponse{second}, "several choices"},
		"a format":           {func(r *Request) { r.Proto.ResponseFormat = workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_OBJECT }, nil, nil, "constrained"},
		"log probabilities":  {func(r *Request) { r.Proto.Logprobs = true }, nil, nil, "log probabilities"},
		"a call has begun":   {func(*Request) {}, []*workerv1.GenerateResponse{call}, nil, "a call of a tool"},
		"it is long already": {func(*Request) {}, []*workerv1.GenerateResponse{long, long, long, long}, nil, "1024 KiB"},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restart %v", name, restart), func(t *testing.T) {
				f := newFleet(t, 2, answer(nil, append([]*workerv1.GenerateResponse{accepted(), delta("A"), finish()}, c.rest...)...))
				f.workers[0].script = answer(status.Error(codes.Unavailable, "gone"), append([]*workerv1.GenerateResponse{accepted(), delta("a")}, c.first...)...)
				r := story.request()
				r.Restart = restart
				c.change(&r)
				s, err := f.Generate(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				got, err := collect(s, nil)
				var on *Error
				switch {
				case restart && (err != nil || got.text != "A" || s.Attempts() != 2 || s.Resumes() != 0):
					t.Errorf("got %q, %v after %d attempts", got.text, err, s.Attempts())
				case !restart && (!errors.As(err, &on) || !errors.Is(on, ErrLost) || !strings.Contains(on.Stays, c.want)):
					t.Errorf("ended by %v", err)
				}
				if asked := len(f.workers[1].seen()); (asked == 1) != restart {
					t.Errorf("the second worker was asked %d times", asked)
				}
			})
		}
	}
}

func TestAnAnswerBeginsAgainWhereNobodyCanGoOnWithIt(t *testing.T) {
	f := newFleet(t, 2, whole)
	tokenwise(f, story, 0)
	f.workers[1].Resumes = false
	f.publish(f.clock.Now())
	r := story.request()
	r.Restart = true
	s, err := f.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := collect(s, nil); err != nil || !reflect.DeepEqual(got, story.undisturbed(t)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if n := len(f.workers[1].seen()[0].GetResumeTokens()); n != 0 {
		t.Errorf("it begins after %d tokens", n)
	}
}

// TestAnAnswerThatBeganAgainGoesOnFromThere has two workers drain: nobody can go on after the first, and one after the second.
func TestAnAnswerThatBeganAgainGoesOnFromThere(t *testing.T) {
	f := newFleet(t, 3, whole)
	tokenwise(f, story, 0, 1)
	resumes := func(yes bool) {
		for _, w := range f.workers {
			w.Resumes = yes
		}
		f.publish(f.clock.Now())
	}
	resumes(false)
	r := story.request()
	r.Restart = true
	f.sync(func(_ int, w *Worker) { w.Draining = true })
	s, err := f.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := collect(s, func(int) { resumes(s.Attempts() == 2) })
	if err != nil || !reflect.DeepEqual(got, story.undisturbed(t)) || s.Attempts() != 3 || s.Resumes() != 1 {
		t.Errorf("got %+v, %v after %d attempts and %d resumes", got, err, s.Attempts(), s.Resumes())
	}
	if got := f.workers[2].seen()[0]; !slices.Equal(got.GetResumeTokens(), ids(2)) || got.GetResumeText() != "ab" {
		t.Errorf("the third worker goes on after %v %q", got.GetResumeTokens(), got.GetResumeText())
	}
}

func TestWorkersThatDrainAreNotLost(t *testing.T) {
	f := newFleet(t, 4, whole)
	tokenwise(f, &script{pieces: story.pieces}, 0, 1, 2)
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.sync(func(_ int, w *Worker) { w.Draining = true })
	got, err := collect(s, func(int) { f.sync(func(_ int, w *Worker) { w.Draining = true }) })
	if err != nil || got.text != "abcdef" || s.Resumes() < 2 {
		t.Errorf("got %+v, %v after %d resumes", got, err, s.Resumes())
	}
}

// restart gives a worker another process, of which the router has heard. What runs at the old one goes on there.
func (f *fleet) restart(w *fakeWorker) {
	w.Instance += "+"
	f.publish(f.clock.Now())
}

func TestAnAnswerGoesOnAtAPodThatItLeftOnceThatHasAnotherProcess(t *testing.T) {
	f := newFleet(t, 2, whole)
	tokenwise(f, story, 0, 1)
	first := f.workers[0]
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := collect(s, func(n int) {
		if n == 3 { // the second worker has it
			f.restart(first)
			first.script = story.whole
		}
		f.sync(func(_ int, w *Worker) { w.Draining = true })
	})
	if err != nil || got.text != "abcdef" || s.Worker() != first.Pod || s.Resumes() != 2 {
		t.Errorf("got %+v, %v from %s after %d resumes", got, err, s.Worker(), s.Resumes())
	}
	if calls := first.seen(); len(calls) != 2 || calls[1].GetExpectedInstanceId() != first.Instance {
		t.Errorf("it was asked by %v", calls)
	}
}

// TestWorkersThatStartAgainAndAgainEndAnAnswerInTime has two pods whose processes end after each token and are others at once.
func TestWorkersThatStartAgainAndAgainEndAnAnswerInTime(t *testing.T) {
	long := &script{pieces: strings.Split(strings.Repeat("a ", 30), " ")}
	for name, c := range map[string]struct {
		drain bool
		asked int
	}{
		"workers that are lost": {false, mostLost},
		"workers that drain":    {true, mostMoves + 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, whole)
			for _, w := range f.workers {
				w.script = func(r *workerv1.GenerateRequest, o out) error {
					stop := len(r.GetResumeTokens()) + 1
					return long.play(r, o, func(n int) error {
						if n == stop {
							f.mu.Lock()
							defer f.mu.Unlock()
							f.restart(w)
							return status.Error(codes.Unavailable, "gone")
						}
						return nil
					})
				}
			}
			drain := func(int) { f.sync(func(_ int, w *Worker) { w.Draining = c.drain }) }
			drain(0)
			s, err := f.Generate(t.Context(), long.request())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = collect(s, nil)
			if asked := len(f.workers[0].seen()) + len(f.workers[1].seen()); !errors.Is(err, ErrLost) || asked != c.asked {
				t.Errorf("it ended with %v after %d calls, want %d", err, asked, c.asked)
			}
		})
	}
}

// hangs makes workers stop after their second token without an end, and returns what collect is to be given: it lets time pass
// once the answer stands still.
func (f *fleet) hangs(t *testing.T, s func() *Stream, which ...int) func(n int) {
	tokenwise(f, story)
	for _, i := range which {
		f.workers[i].script = func(r *workerv1.GenerateRequest, o out) error {
			stop := len(r.GetResumeTokens()) + 2
			return story.play(r, o, func(n int) error {
				if n == stop {
					<-o.Context().Done()
					return o.Context().Err()
				}
				return nil
			})
		}
	}
	return func(n int) {
		if n%2 != 0 || n > 2*len(which) {
			return
		}
		at := s().at
		go func() {
			eventually(t, "waiting", func() bool { return at.patience.waiting.Load() > 0 && f.clock.HasWaiters() })
			f.clock.Step(time.Minute)
		}()
	}
}

func TestAnAnswerThatStandsStillGoesOnElsewhereOnce(t *testing.T) {
	for name, c := range map[string]struct {
		hang     []int
		text     string
		want     error
		outcomes []string
	}{
		"the first worker hangs": {[]int{0}, "abcdef", nil, []string{" failed", " good"}},
		"two of them hang":       {[]int{0, 1}, "abcd", ErrIdle, []string{" failed", " failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, whole)
			var s *Stream
			step := f.hangs(t, func() *Stream { return s }, c.hang...)
			var err error
			if s, err = f.Generate(t.Context(), story.request()); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got, err := collect(s, step)
			if got.text != c.text || !errors.Is(err, c.want) || s.Resumes() != 1 || len(f.workers[2].seen()) != 0 {
				t.Errorf("got %+v, %v after %d resumes", got, err, s.Resumes())
			}
			if f.workers[0].ended(t) == nil {
				t.Error("the first worker's call goes on")
			}
			for i := range c.outcomes {
				c.outcomes[i] = f.workers[i].Pod + c.outcomes[i]
			}
			if !slices.Equal(f.outcomes, c.outcomes) {
				t.Errorf("told of %q, want %q", f.outcomes, c.outcomes)
			}
		})
	}
}

func TestAClientThatGoesAwayWhileItsAnswerMovesEndsIt(t *testing.T) {
	f := newFleet(t, 2, whole)
	tokenwise(f, story, 0)
	f.workers[1].script = stay(accepted())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := f.Generate(ctx, story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go func() {
		for len(f.workers[1].seen()) == 0 {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	if _, err := collect(s, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = f.workers[0].ended(t)
	if f.workers[1].ended(t) == nil {
		t.Error("the second worker's call goes on")
	}
}

func TestACallOfAToolGoesOnAfterItsTokens(t *testing.T) {
	piece := func(token uint32, c *workerv1.ToolCall) *workerv1.GenerateResponse {
		return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{
			ToolCalls: []*workerv1.ToolCall{c}, Tokens: []uint32{token},
		}}}
	}
	f := newFleet(t, 2, answer(nil, accepted(), piece(101, &workerv1.ToolCall{Arguments: "{}"}), finish()))
	f.workers[0].script = answer(status.Error(codes.Unavailable, "gone"), accepted(), piece(100, &workerv1.ToolCall{Id: "call-1", Name: "f"}))
	s, err := f.Generate(t.Context(), story.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := collect(s, nil); err != nil || !slices.Equal(got.tokens, ids(2)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := f.workers[1].seen()[0].GetResumeTokens(); !slices.Equal(got, ids(1)) {
		t.Errorf("the second worker goes on after %v", got)
	}
}

func TestAnAnswerWithoutTokenIdsMayMakeWhatIsLeftOfItsTokens(t *testing.T) {
	for name, c := range map[string]struct{ most, least, pieces, wantMost, wantLeast uint32 }{
		"some are left":           {10, 5, 2, 8, 3},
		"none is left":            {2, 2, 2, 1, 0},
		"more pieces than tokens": {2, 1, 3, 1, 0},
		"there is no limit":       {0, 0, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, answer(nil, accepted(), delta("z"), finish()))
			events := []*workerv1.GenerateResponse{accepted()}
			for range c.pieces {
				events = append(events, delta("a"))
			}
			f.workers[0].script = answer(status.Error(codes.Unavailable, "gone"), events...)
			r := story.request()
			r.Proto.MaxTokens, r.Place.MaxTokens, r.Proto.MinTokens = c.most, c.most, c.least
			s, err := f.Generate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := collect(s, nil); err != nil {
				t.Fatal(err)
			}
			if got := f.workers[1].seen()[0]; got.GetMaxTokens() != c.wantMost || got.GetMinTokens() != c.wantLeast || f.resumes[0].Tokens != int(c.pieces) {
				t.Errorf("the second worker may make %d to %d, of %d; want %d to %d", got.GetMinTokens(), got.GetMaxTokens(), f.resumes[0].Tokens, c.wantLeast, c.wantMost)
			}
			if n := f.tickets[1].result.CompletionTokens; n != 1 {
				t.Errorf("the second worker is thought to have made %d", n)
			}
		})
	}
}

func TestTokensThatAreNamedOnlyInTheEndAreNotTakenForAll(t *testing.T) {
	k := kept{memory: &memory{most: defaultKept}}
	k.add(&workerv1.Delta{Text: "a"})
	k.add(&workerv1.Delta{Text: "b", Tokens: []uint32{7}})
	var r workerv1.GenerateRequest
	if k.put(&r); len(r.GetResumeTokens()) != 0 || r.GetResumeText() != "ab" || k.made() != 2 {
		t.Errorf("it goes on after %v, %d tokens", &r, k.made())
	}
}

func TestUsageOfAnAnswerThatMoved(t *testing.T) {
	for name, c := range map[string]struct {
		said         *workerv1.Usage
		prompt       uint32
		made, own    int
		unnamed      bool
		wantPrompt   uint32
		want, cached uint32
	}{
		"an engine that counts":              {&workerv1.Usage{PromptTokens: 5, CompletionTokens: 10, CachedTokens: 4}, 5, 4, 6, false, 5, 10, 4},
		"an engine that counts the end, too": {&workerv1.Usage{PromptTokens: 5, CompletionTokens: 11, CachedTokens: 4}, 5, 4, 6, false, 5, 11, 4},
		"an engine that does not":            {&workerv1.Usage{PromptTokens: 9, CompletionTokens: 6, CachedTokens: 9}, 5, 4, 6, false, 5, 10, 5},
		"an engine that counts a text anew":  {&workerv1.Usage{PromptTokens: 5, CompletionTokens: 9, CachedTokens: 4}, 5, 4, 6, false, 5, 10, 4},
		"a prompt that nobody counted":       {&workerv1.Usage{PromptTokens: 9, CompletionTokens: 6}, 0, 4, 6, false, 9, 10, 0},
		"an engine that names no tokens":     {&workerv1.Usage{PromptTokens: 9, CompletionTokens: 6, CachedTokens: 9}, 5, 4, 6, true, 5, 10, 5},
		"one that counts several in a piece": {&workerv1.Usage{PromptTokens: 9, CompletionTokens: 14, CachedTokens: 4}, 5, 4, 6, true, 5, 18, 4},
		"one that did not count the prompt":  {&workerv1.Usage{PromptTokens: 9, CompletionTokens: 6, CachedTokens: 9}, 0, 4, 6, true, 5, 10, 5},
		"one that counts nothing":            {nil, 0, 4, 6, true, 0, 10, 0},
		"no usage":                           {nil, 5, 4, 6, false, 5, 10, 0},
	} {
		u := joined(c.said, c.prompt, c.made, !c.unnamed, c.own)
		if u.GetPromptTokens() != c.wantPrompt || u.GetCompletionTokens() != c.want || u.GetCachedTokens() != c.cached {
			t.Errorf("%s: got %v", name, u)
		}
	}
}
