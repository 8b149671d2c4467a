package placement

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/router/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodes = 150

func workers(n int) []Worker {
	out := make([]Worker, n)
	for i := range out {
		out[i] = Worker{
			Pod: "w" + strconv.Itoa(i), Address: fmt.Sprintf("10.0.0.%d:9443", i), Instance: "i" + strconv.Itoa(i),
			Loaded: true, InRing: true,
		}
	}
	return out
}

// walk is the order in which workers should be taken.
func walk(n int, key []byte) []string {
	var names []string
	for _, w := range workers(n) {
		names = append(names, w.Pod)
	}
	return slices.Collect(ring.New(names, nodes).Walk(key))
}

func TestPlacementFollowsTheWalk(t *testing.T) {
	key := []byte("session-1")
	order := walk(4, key)
	for name, c := range map[string]struct {
		suspect, out []string // pods, by their place in the walk
		exclude      []string
		want         string // "" means nobody
	}{
		"the owner has the key":                               {want: order[0]},
		"the next takes over from one that was tried":         {exclude: order[:1], want: order[1]},
		"and the one after from two":                          {exclude: order[:2], want: order[2]},
		"a suspect is passed over":                            {suspect: order[:1], want: order[1]},
		"suspects and tried ones are passed over":             {suspect: order[:2], exclude: order[2:3], want: order[3]},
		"when only suspects are left, the first of them goes": {suspect: order, want: order[0]},
		"a suspect that was tried is not tried again":         {suspect: order, exclude: order[:1], want: order[1]},
		"one that is not in the ring gets nothing":            {out: order[:1], want: order[1]},
		"all tried":                  {exclude: order},
		"nobody is in the ring":      {out: order},
		"the only one left is tried": {out: order[1:], exclude: order[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			ws := workers(4)
			for i := range ws {
				ws[i].Suspect = slices.Contains(c.suspect, ws[i].Pod)
				ws[i].InRing = !slices.Contains(c.out, ws[i].Pod)
			}
			v := NewView(nil, "uid", ws, nodes)
			got, err := Place(v, key, c.exclude...)
			if got.Pod != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("got %q and %v, want %q", got.Pod, err, c.want)
			}
			if err != nil && !errors.Is(err, ErrNoWorker) {
				t.Errorf("%v is not ErrNoWorker", err)
			}
			if err == nil && !slices.Contains(ws, got) {
				t.Errorf("%+v is none of the workers", got)
			}
		})
	}
}

func TestTheErrorCountsWhatThereIs(t *testing.T) {
	ws := workers(3)
	ws[0].InRing, ws[1].InRing, ws[1].Loaded = false, false, false
	_, err := Place(NewView(nil, "uid", ws, nodes), nil, "w2")
	var no *NoWorkerError
	if !errors.As(err, &no) || *no != (NoWorkerError{Candidates: 3, Loaded: 2, InRing: 1, Excluded: 1}) {
		t.Fatalf("got %#v", err)
	}
	want := "no worker can take the request: of 3 workers 2 have loaded the model and 1 are in the ring; 1 have been tried"
	if err.Error() != want {
		t.Errorf("got %q", err)
	}
	if _, err := Place(nil, nil); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a nil view gives %v", err)
	}
}

func TestAViewKeepsTheRingWhileItsMembersStay(t *testing.T) {
	a := NewView(nil, "uid", workers(3), nodes)
	changed := workers(3)
	changed[0].Suspect, changed[1].Instance = true, "another"
	slices.Reverse(changed)
	if b := NewView(a, "uid", changed, nodes); b.ring != a.ring || b.RingVersion() != a.RingVersion() {
		t.Error("the ring was made again")
	}
	if b := NewView(a, "uid", workers(3), nodes+1); b.ring == a.ring || b.RingVersion() == a.RingVersion() {
		t.Error("the ring has the wrong number of virtual nodes")
	}
	if b := NewView(a, "uid", workers(2), nodes); b.InRing() != 2 || b.RingVersion() == a.RingVersion() {
		t.Error("the ring has a member that is gone")
	}
}

func TestABoardHasWhatWasSetLast(t *testing.T) {
	var b Board
	if _, err := b.Place("uid", nil); !errors.Is(err, ErrNoWorker) {
		t.Errorf("an empty board gives %v", err)
	}
	b.Set(map[string][]Worker{"uid": workers(2), "other": nil}, nodes)
	if w, err := b.Place("uid", []byte("k")); err != nil || w.Pod != walk(2, []byte("k"))[0] {
		t.Errorf("got %+v, %v", w, err)
	}
	if v := b.View("other"); v == nil || v.Candidates() != 0 || v.Loaded() != 0 {
		t.Errorf("other has %+v", v)
	}
	b.Set(nil, nodes)
	if b.View("uid") != nil {
		t.Error("a model that is gone has a view")
	}
}

func TestReadersSeeWholeViewsWhileTheBoardChanges(t *testing.T) {
	var b Board
	b.Set(map[string][]Worker{"uid": workers(1)}, 10)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := range 200 {
				b.Set(map[string][]Worker{"uid": workers(1 + i%5)}, 10)
			}
		})
		all.Go(func() {
			for i := range 2000 {
				v := b.View("uid")
				if w, err := Place(v, []byte{byte(i)}); err != nil || v.InRing() != v.Candidates() || w.Address == "" {
					t.Errorf("got %+v, %v", w, err)
					return
				}
			}
		})
	}
	all.Wait()
}
