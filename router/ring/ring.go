// Package ring maps keys to members by consistent hashing: 2³² positions, a number of virtual nodes for each member,
// and the first virtual node at or after a key's position owns the key. A ring is an immutable value and a pure
// function of its members, so equal sets give equal owners in every process and every release; adding a member moves
// keys only to it, removing one moves only its own. A member is a name (routers use the pod's, which outlives restarts
// of its container). The package knows nothing of health or load: who is a member is package heartbeat's verdict.
package ring

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// DefaultVirtualNodes is how many virtual nodes a member has when nothing else is asked for.
const DefaultVirtualNodes = 150

// Ring never changes; New makes another one. The zero Ring and a nil one have no members.
type Ring struct {
	members []string // sorted, distinct
	points  []point  // sorted by position, then member
	// first[b] is the index of the first point in bucket b or after it; a position's bucket is its upper bits.
	first   []uint32
	shift   uint
	version uint64
}

// point is one virtual node.
type point struct {
	position uint32
	member   uint32 // index into members
}

// New returns the ring of members, in any order and with repetitions, with virtualNodes points for each;
// DefaultVirtualNodes when that is less than one. Where two members' points collide, the smaller name has the position.
func New(members []string, virtualNodes int) *Ring {
	if virtualNodes < 1 {
		virtualNodes = DefaultVirtualNodes
	}
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	r := &Ring{members: sorted, version: version(sorted, virtualNodes)}
	r.points = make([]point, 0, len(sorted)*virtualNodes)
	var buf []byte
	for m, name := range sorted {
		for i := range virtualNodes {
			buf = appendNode(buf[:0], name, i)
			r.points = append(r.points, point{position(buf), uint32(m)})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.member, b.member))
	})
	r.index()
	return r
}

// index cuts the ring into at least as many buckets as there are points, so that a lookup passes about one of them.
func (r *Ring) index() {
	width := uint(bits.Len(uint(len(r.points))))
	r.shift = 32 - width
	r.first = make([]uint32, 1<<width)
	next := 0
	for b := range r.first {
		for next < len(r.points) && r.points[next].position>>r.shift < uint32(b) {
			next++
		}
		r.first[b] = uint32(next)
	}
}

// Owner returns the member that owns key; false when the ring is empty.
func (r *Ring) Owner(key []byte) (string, bool) {
	if r.Len() == 0 {
		return "", false
	}
	return r.members[r.points[r.find(position(key))].member], true
}

// Walk yields every member once, in the order in which their virtual nodes follow key's position: the owner first,
// then the one that would own the key if the owner were gone, and so on.
func (r *Ring) Walk(key []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if r.Len() == 0 {
			return
		}
		start := r.find(position(key))
		owner := r.points[start].member
		if !yield(r.members[owner]) || len(r.members) == 1 {
			return
		}
		seen := make([]bool, len(r.members))
		seen[owner] = true
		left := len(r.members) - 1
		for i := start + 1; left > 0; i++ {
			m := r.points[i%len(r.points)].member
			if seen[m] {
				continue
			}
			seen[m] = true
			left--
			if !yield(r.members[m]) {
				return
			}
		}
	}
}

// Members returns the members in the order of their names. The caller must not change the slice.
func (r *Ring) Members() []string {
	if r == nil {
		return nil
	}
	return r.members
}

// Len is the number of members.
func (r *Ring) Len() int {
	if r == nil {
		return 0
	}
	return len(r.members)
}

// Version is a hash of the members and the number of virtual nodes: equal sets have equal versions.
func (r *Ring) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}

// find returns the index of the first point at or after p, around the ring.
func (r *Ring) find(p uint32) int {
	i := int(r.first[p>>r.shift])
	for i < len(r.points) && r.points[i].position < p {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return i
}
