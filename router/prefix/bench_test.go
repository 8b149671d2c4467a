package prefix

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
)

var sizes = []int{1 << 10, 10 << 10, 100 << 10, 220 << 10}

func size(bytes int) string { return fmt.Sprint(bytes>>10, "KB") }

// fleet is an index in which every worker has a system prompt of 16 KB and conversations of its own, and that is full.
func fleet(workers int) (*Index, []Slot, []byte) {
	x := New(Options{})
	slots := make([]Slot, workers)
	for i := range slots {
		slots[i] = x.Slot(strconv.Itoa(i))
		x.Resize(slots[i], 8_000_000/workers)
	}
	prompt := []byte(text("system", 3600))
	fill(x, slots, 0, 20_000, 512)
	for i, s := range slots {
		b := Begin(nil, "model")
		b.Write(prompt[:16<<10])
		b.Write([]byte(text(strconv.Itoa(i), 100)))
		x.Insert(s, b.Chain())
	}
	return x, slots, prompt
}

func BenchmarkChain(b *testing.B) {
	for _, bytes := range sizes {
		b.Run(size(bytes), func(b *testing.B) {
			prompt := make([]byte, bytes)
			var c Chain
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				w := Begin(c, "0b9f6c1e-7f52-4a53-a9c4-5d3a4f1d2c3b", "", "")
				w.Write(prompt)
				c = w.Chain()
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, workers := range []int{8, 200} {
		x, slots, prompt := fleet(workers)
		for _, bytes := range sizes {
			w := Begin(nil, "model")
			w.Write(prompt[:bytes])
			c := w.Chain()
			x.Insert(slots[0], c)
			x.Insert(slots[1], c)
			b.Run(fmt.Sprint(size(bytes), "/", workers, " workers"), func(b *testing.B) {
				dst := make([]int, workers)
				b.ReportAllocs()
				for b.Loop() {
					dst = x.Match(c, slots, dst)
				}
			})
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	x, slots, prompt := fleet(8)
	for _, bytes := range sizes {
		b.Run(size(bytes)+"/known", func(b *testing.B) {
			w := Begin(nil, "model")
			w.Write(prompt[:bytes])
			c := w.Chain()
			others := Begin(nil, "other")
			others.Write(prompt[:BlockBytes])
			x.Insert(slots[0], c)
			b.ReportAllocs()
			for b.Loop() {
				x.Insert(slots[0], others.Chain()) // so that c has to be moved
				x.Insert(slots[0], c)
			}
		})
		b.Run(size(bytes)+"/new", func(b *testing.B) {
			c := make(Chain, bytes/BlockBytes)
			next := uint64(bytes)
			b.ReportAllocs()
			for b.Loop() {
				for i := range c {
					next++
					c[i] = next
				}
				x.Insert(slots[next%8], c)
			}
		})
	}
}

// BenchmarkDecision220KB is all that a request costs here: hash, look at 8 workers, note. Every prompt is new to a full
// index, so as much goes as comes.
func BenchmarkDecision220KB(b *testing.B) {
	x, slots, prompt := fleet(8)
	dst := make([]int, 8)
	var c Chain
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		w := Begin(c, "model", strconv.Itoa(i))
		w.Write(prompt[:220<<10])
		c = w.Chain()
		dst = x.Match(c, slots, dst)
		x.Insert(slots[i%8], c)
	}
}

// BenchmarkRequests is match, insert and settle of conversations of 8 KB, by as many goroutines as it says.
func BenchmarkRequests(b *testing.B) {
	for _, goroutines := range []int{1, 8} {
		b.Run(fmt.Sprint(goroutines, " goroutines"), func(b *testing.B) {
			x, slots, prompt := fleet(8)
			talks := make([]Chain, 1000)
			for i := range talks {
				w := Begin(nil, "model")
				w.Write(prompt[:4<<10])
				w.Write([]byte(text(strconv.Itoa(i), 64)))
				talks[i] = w.Chain()
			}
			var next, left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan struct{})
			b.ResetTimer()
			for range goroutines {
				go func() {
					defer func() { done <- struct{}{} }()
					dst := make([]int, 8)
					for left.Add(-1) >= 0 {
						i := next.Add(1)
						c := talks[i*7919%1000]
						dst = x.Match(c, slots, dst)
						s := slots[i*7919%8]
						x.Settle(s, c, x.Insert(s, c), dst[0])
					}
				}()
			}
			for range goroutines {
				<-done
			}
		})
	}
}
