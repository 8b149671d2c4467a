package placement

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/ring"
)

var update = flag.Bool("update", false, "rewrite transcripts")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodes = 150
	uid   = "uid-1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// workers are n workers in the ring.
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

// of is what Set takes for one model.
func of(workers []Worker) map[string][]Worker { return map[string][]Worker{uid: workers} }

// board is one with an index and n workers.
func board(o Options, n int) *Board {
	if o.Index == nil {
		o.Index = prefix.New(prefix.Options{MaxBytes: 16 << 20})
	}
	b := NewBoard(o)
	b.Set(of(workers(n)), nodes, epoch)
	return b
}

// walk is the order in which a ring of n workers is walked from a key.
func walk(n int, key string) []string {
	members := make([]ring.Member, n)
	for i, w := range workers(n) {
		members[i].Name = w.Pod
	}
	r := ring.New(members, nodes)
	var names []string
	for i := range r.Walk([]byte(key)) {
		names = append(names, r.Members()[i].Name)
	}
	return names
}

// chain is that of a prompt.
func chain(prompt string) prefix.Chain {
	b := prefix.Begin(nil, uid)
	b.Write([]byte(prompt))
	return b.Chain()
}

// text is n bytes that begin as no other text does.
func text(name string, n int) string {
	b := []byte(name)
	for i := 0; len(b) < n; i++ {
		b = append(strconv.AppendInt(b, int64(i), 10), ' ')
	}
	return string(b[:n])
}

// ask is a request for a prompt.
func ask(id, key, prompt string) *Request {
	return &Request{ModelUID: uid, RequestID: id, Key: []byte(key), Chain: chain(prompt), PromptBytes: len(prompt)}
}

// place places a request that must find a worker.
func place(t testing.TB, b *Board, q *Request, now time.Time) *Ticket {
	t.Helper()
	k, err := b.Place(q, now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// lives are what a board knows of its workers' work, by pod.
func lives(b *Board) map[string]*live {
	out := map[string]*live{}
	for pod, m := range b.View(uid).pods {
		out[pod] = m.live
	}
	return out
}

// loads are the requests of each worker, the most loaded first.
func loads(b *Board) []int {
	var out []int
	for _, l := range lives(b) {
		out = append(out, l.load())
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

func count(n uint64) *uint64       { return &n }
func rate(r float64) *float64      { return &r }
func at(d time.Duration) time.Time { return epoch.Add(d) }
