package placement

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// BenchmarkPlace is a request's whole time on a board: placed, first token, ended. The index of prefixes is left out in
// "without index", and has a prompt of 8 KiB otherwise.
func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{8, 200} {
		for _, indexed := range []bool{false, true} {
			for _, policy := range policies {
				name := fmt.Sprintf("%d workers/%s/without index", n, policy.Name())
				if indexed {
					name = fmt.Sprintf("%d workers/%s/with index", n, policy.Name())
				}
				b.Run(name, func(b *testing.B) {
					o := board(Options{Policy: policy}, n)
					q := ask("r", "key", text("a", 8192))
					if !indexed {
						q.Chain = nil
					}
					b.ReportAllocs()
					now := epoch
					for b.Loop() {
						k, err := o.Place(q, now)
						if err != nil {
							b.Fatal(err)
						}
						k.FirstToken(now)
						k.Ended(Result{}, now)
						now = now.Add(time.Microsecond)
					}
				})
			}
		}
	}
}

// BenchmarkPlaceInParallel is the same from all processors, with requests under way.
func BenchmarkPlaceInParallel(b *testing.B) {
	o := board(Options{}, 8)
	for i := range 200 {
		place(b, o, &Request{ModelUID: uid, RequestID: strconv.Itoa(i), PromptTokens: 1000}, epoch)
	}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		q := &Request{ModelUID: uid, RequestID: "r", Key: []byte("key"), PromptTokens: 1000}
		for p.Next() {
			k, err := o.Place(q, epoch)
			if err != nil {
				b.Error(err)
				return
			}
			k.Ended(Result{}, epoch)
		}
	})
}

func BenchmarkReason(b *testing.B) {
	o := board(Options{}, 8)
	k := place(b, o, ask("r", "key", "hello"), epoch)
	b.ReportAllocs()
	for b.Loop() {
		_ = k.Reason()
	}
}

func BenchmarkObserve(b *testing.B) {
	o := board(Options{}, 200)
	l := Load{Running: 64, Seats: 256, KVTotal: count(1e6), KVUsed: count(1e5), Backlog: count(1e4), Prefill: rate(8000)}
	for i := range 64 {
		id := strconv.Itoa(i)
		q := ask(id, id, "hello")
		for j := range 200 {
			if j > 0 {
				q.Exclude = append(q.Exclude, Process{Pod: "w" + strconv.Itoa(j)})
			}
		}
		place(b, o, q, epoch)
		l.RequestIDs = append(l.RequestIDs, id)
	}
	b.ReportAllocs()
	now := epoch
	for b.Loop() {
		o.Observe(uid, "w0", "i0", l, now)
		now = now.Add(5 * time.Millisecond)
	}
}

func BenchmarkLevels(b *testing.B) {
	o := board(Options{}, 200)
	for b.Loop() {
		o.Levels(uid, epoch)
	}
}
