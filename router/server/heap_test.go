package server

import (
	"runtime"
	"testing"
	"time"
)

func TestASmallHeapGetsItsRoomAndALargeOneGrowsAsByDefault(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 800, 1 << 20: 800, 2 << 20: 800, 4 << 20: 800, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 33 << 20: 100, 1 << 40: 100,
	} {
		if got := collectPercent(live); got != want {
			t.Errorf("a heap of %d bytes is collected after %d %%, want %d", live, got, want)
		}
	}
}

func TestAPercentageStaysWhereItIsNearlyRight(t *testing.T) {
	for _, x := range []struct {
		is, want int
		near     bool
	}{{100, 100, true}, {125, 100, true}, {126, 100, false}, {75, 100, true}, {74, 100, false}, {100, 1600, false}} {
		if near(x.is, x.want) != x.near {
			t.Errorf("%d is near %d: %v, want %v", x.is, x.want, !x.near, x.near)
		}
	}
}

func TestThePercentageFollowsTheHeapWithEachCollection(t *testing.T) {
	set := make(chan int, 1)
	w := &heapWatch{percent: 1, set: func(percent int) { set <- percent }}
	defer w.stop()
	w.judge()
	if got := <-set; got < usualPercent || got > mostPercent {
		t.Fatalf("the percentage is set to %d", got)
	}
	kept := make([]byte, 4*heapRoom)
	if !comesTo(set, usualPercent) {
		t.Fatal("no collection sets the percentage of a large heap")
	}
	runtime.KeepAlive(kept)
}

func TestThePercentageFollowsStacksToo(t *testing.T) {
	set := make(chan int, 1)
	w := &heapWatch{percent: 1, set: func(percent int) { set <- percent }}
	defer w.stop()
	came := true
	deep(2*heapRoom>>10, func() {
		w.judge()
		came = comesTo(set, usualPercent)
	})
	if !came {
		t.Fatal("no collection sets the percentage of a small heap beside large stacks")
	}
}

// deep calls so many KiB down its stack.
//
//go:noinline
func deep(n int, call func()) (sum byte) {
	var frame [1 << 10]byte
	if n == 0 {
		call()
		return 0
	}
	frame[n%len(frame)] = deep(n-1, call)
	for _, b := range frame {
		sum += b
	}
	return sum
}

// comesTo collects until the percentage is set to want, and reports whether it ever is.
func comesTo(set <-chan int, want int) bool {
	bound := time.After(time.Minute)
	for {
		runtime.GC()
		select {
		case got := <-set:
			if got == want {
				return true
			}
		case <-bound:
			return false
		default:
			runtime.Gosched()
		}
	}
}
