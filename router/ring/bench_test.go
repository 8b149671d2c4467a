package ring

import (
	"fmt"
	"slices"
	"testing"
)

// benchKeys are as long as the UUIDs that clients take for sessions.
func benchKeys() [1024][]byte {
	var keys [1024][]byte
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%08x-5f0c-4c3b-9d27-0b5f5f1f%04x", i*2654435761, i)[:36]
	}
	return keys
}

func eachSize(b *testing.B, sizes []int, run func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

func BenchmarkKeyHash(b *testing.B) {
	keys := benchKeys()
	var sum uint32
	for i := 0; b.Loop(); i++ {
		sum += position(keys[i&1023])
	}
}

func BenchmarkOwner(b *testing.B) {
	keys := benchKeys()
	eachSize(b, []int{2, 8, 32, 128, 1000}, func(b *testing.B, n int) {
		r := New(pods(n), 150)
		for i := 0; b.Loop(); i++ {
			r.Owner(keys[i&1023])
		}
	})
}

// BenchmarkLookup is BenchmarkOwner without the hash: from a key's position to its owner's name.
func BenchmarkLookup(b *testing.B) {
	var positions [1024]uint32
	for i, k := range benchKeys() {
		positions[i] = position(k)
	}
	eachSize(b, []int{8, 128, 1000}, func(b *testing.B, n int) {
		r := New(pods(n), 150)
		var name string
		for i := 0; b.Loop(); i++ {
			name = r.members[r.points[r.find(positions[i&1023])].member()].Name
		}
		_ = name
	})
}

// BenchmarkOwnerByBinarySearch is what a lookup costs without buckets.
func BenchmarkOwnerByBinarySearch(b *testing.B) {
	keys := benchKeys()
	eachSize(b, []int{2, 8, 32, 128, 1000}, func(b *testing.B, n int) {
		r := New(pods(n), 150)
		var name string
		for i := 0; b.Loop(); i++ {
			found, _ := slices.BinarySearch(r.points, at(position(keys[i&1023]), 0))
			name = r.members[r.points[found%len(r.points)].member()].Name
		}
		_ = name
	})
}

func BenchmarkWalk(b *testing.B) {
	keys := benchKeys()
	for _, stop := range []int{3, 1 << 30} {
		name := "three"
		if stop > 3 {
			name = "all"
		}
		b.Run(name, func(b *testing.B) {
			eachSize(b, []int{8, 32, 128, 256, 1000}, func(b *testing.B, n int) {
				r := New(pods(n), 150)
				sum := 0
				for i := 0; b.Loop(); i++ {
					walked := 0
					for m := range r.Walk(keys[i&1023]) {
						sum += m
						if walked++; walked == stop {
							break
						}
					}
				}
			})
		})
	}
}

func BenchmarkNew(b *testing.B) {
	eachSize(b, []int{2, 8, 32, 128, 1000}, func(b *testing.B, n int) {
		members := pods(n)
		for b.Loop() {
			New(members, 150)
		}
	})
}

// BenchmarkChange is one change of a ring of n members: one joins, one leaves, one has another weight.
func BenchmarkChange(b *testing.B) {
	for name, change := range map[string]func(r *Ring){
		"join":   func(r *Ring) { r.Change([]Member{{Name: "smollm2-3f2a91c4-7d9b-x"}}, nil) },
		"leave":  func(r *Ring) { r.Change(nil, []string{"smollm2-3f2a91c4-7d9b-1"}) },
		"weight": func(r *Ring) { r.Change([]Member{{"smollm2-3f2a91c4-7d9b-1", 50}}, nil) },
	} {
		b.Run(name, func(b *testing.B) {
			eachSize(b, []int{8, 32, 128, 1000}, func(b *testing.B, n int) {
				r := New(pods(n), 150)
				for b.Loop() {
					change(r)
				}
			})
		})
	}
}
