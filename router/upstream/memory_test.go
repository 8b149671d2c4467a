package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestTheLongestAnswersMakeRoomWhereMuchIsKept(t *testing.T) {
	m := &memory{most: 1 << 20}
	long := kept{memory: m}
	for range 1000 {
		long.add(&workerv1.Delta{Text: strings.Repeat("x", 100), Tokens: []uint32{1, 2}})
	}
	if long.gone != crowded || m.used.Load() != 0 || long.obstacle() != crowded {
		t.Fatalf("an answer of 100 kB is kept in %d bytes: %q", m.used.Load(), long.gone)
	}
	short := make([]kept, 200)
	keeps := 0
	for i := range short {
		short[i].memory = m
		for range 10 {
			short[i].add(&workerv1.Delta{Text: strings.Repeat("x", 100)})
			if used := m.used.Load(); used > m.most {
				t.Fatalf("%d bytes are kept, %d may be", used, m.most)
			}
		}
		if short[i].gone == "" {
			keeps++
		}
	}
	if keeps != len(short) {
		t.Errorf("of %d answers of 1 kB %d are kept, in %d bytes", len(short), keeps, m.used.Load())
	}
	for i := range short {
		short[i].drop()
		short[i].drop()
	}
	if n := m.used.Load(); n != 0 {
		t.Errorf("%d bytes are kept of answers that have ended", n)
	}
}

func TestWhatIsKeptHasABoundHoweverManyAnswersThereAre(t *testing.T) {
	m := &memory{most: 1 << 20}
	all := make([]kept, 20_000)
	for round := range 4 {
		for i := range all {
			all[i].memory = m
			all[i].add(&workerv1.Delta{Text: "some text", Tokens: []uint32{1, 2}})
			if used := m.used.Load(); used > m.most {
				t.Fatalf("round %d: %d bytes are kept, %d may be", round, used, m.most)
			}
		}
	}
	if used := m.used.Load(); used < m.most/2 {
		t.Errorf("only %d bytes of %d are used", used, m.most)
	}
}

// TestAnAnswerThatIsNotKeptIsToldToItsEnd has an answer that is too long for what may be kept beside one that is not.
func TestAnAnswerThatIsNotKeptIsToldToItsEnd(t *testing.T) {
	piece := delta(strings.Repeat("x", 2048))
	more := make(chan struct{})
	f := newFleet(t, 2, whole)
	f.Client.memory.most = 64 << 10
	f.Client.options.Forgot = func(uid string) { f.mu.Lock(); f.forgot = append(f.forgot, uid); f.mu.Unlock() }
	f.workers[0].script = func(r *workerv1.GenerateRequest, o out) error {
		first := piece
		if r.GetMinTokens() == 1 {
			first = delta("y")
		}
		if err := answer(nil, accepted(), first)(r, o); err != nil {
			return err
		}
		<-more
		if r.GetMinTokens() == 2 {
			return answer(nil, delta("z"), finish())(r, o)
		}
		return engineGone(t)
	}
	var all []*Stream
	for i := range uint32(3) { // long and lost, short and lost, long and finished
		r := story.request()
		r.Proto.MinTokens = i
		s, err := f.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	close(more)
	var on *Error
	if _, _, err := drain(all[0]); !errors.As(err, &on) || on.Stays != crowded {
		t.Errorf("the long one ends with %v", err)
	}
	if text, _, err := drain(all[1]); text != "ab" || !errors.Is(err, io.EOF) || all[1].Resumes() != 1 {
		t.Errorf("the short one goes on with %q, %v", text, err)
	}
	if text, finished, err := drain(all[2]); text != "z" || !finished || !errors.Is(err, io.EOF) {
		t.Errorf("the long one whose worker lives goes on with %q, %v", text, err)
	}
	if len(f.forgot) != 2 || f.forgot[0] != "uid-1" {
		t.Errorf("told of %q", f.forgot)
	}
}
