// Package ring maps keys to members by consistent hashing: 2³² positions, points (virtual nodes) for each member by its
// weight, and the first point at or after a key's position owns the key. A ring is an immutable value and a pure
// function of its members, so equal sets give equal owners in every process and every release, however a process came
// to the set; a member that joins takes keys from others only for itself, one that leaves gives up only its own. A
// member is a name (routers use the pod's, which outlives restarts of its container). The package knows nothing of
// health or load: who is a member is package heartbeat's verdict.
package ring

import (
	"iter"
	"slices"
	"strings"
)

const (
	// DefaultVirtualNodes is how many points a member of weight 100 has when nothing else is asked for.
	DefaultVirtualNodes = 150
	// MaxWeight is the largest weight; it bounds the memory that one member can ask for.
	MaxWeight = 1000

	evenWeight = 100
)

// Member is a name on the ring, with its share of points.
type Member struct {
	Name string
	// Weight is the member's number of points in per cent of the ring's virtual nodes, rounded down, but one at least.
	// Less than 1 means 100, more than MaxWeight means MaxWeight.
	Weight int
}

// points is how many points a member has whose weight is from 1 to MaxWeight.
func (m Member) points(virtualNodes int) int { return max(1, virtualNodes*m.Weight/evenWeight) }

// Ring never changes; New and Change make others. The zero Ring and a nil one have no members.
type Ring struct {
	members      []Member // as canonical returns them
	points       []point  // sorted
	buckets      buckets  // of points
	virtualNodes int
	version      uint64
}

// New returns the ring of members, in any order, with virtualNodes points for each of weight 100; DefaultVirtualNodes
// when that is less than one. Of a name that comes more than once the first counts. Where points of two members have
// one position, it is the smaller name's.
func New(members []Member, virtualNodes int) *Ring {
	if virtualNodes < 1 {
		virtualNodes = DefaultVirtualNodes
	}
	r := &Ring{members: canonical(members), virtualNodes: virtualNodes}
	r.version = version(r.members, virtualNodes)
	points := make([]point, 0, r.size())
	for i, m := range r.members {
		points = appendPoints(points, m, i, virtualNodes)
	}
	r.points, r.buckets = arrange(points)
	return r
}

// canonical returns members sorted by name, each name once, with weights from 1 to MaxWeight.
func canonical(members []Member) []Member {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	sorted = slices.CompactFunc(sorted, func(a, b Member) bool { return a.Name == b.Name })
	for i := range sorted {
		if sorted[i].Weight < 1 {
			sorted[i].Weight = evenWeight
		}
		sorted[i].Weight = min(sorted[i].Weight, MaxWeight)
	}
	return sorted
}

// size is how many points the members have together.
func (r *Ring) size() int {
	n := 0
	for _, m := range r.members {
		n += m.points(r.virtualNodes)
	}
	return n
}

// Owner returns the name of the member that owns key; false when the ring is empty.
func (r *Ring) Owner(key []byte) (string, bool) {
	if r.Len() == 0 {
		return "", false
	}
	return r.members[r.points[r.find(position(key))].member()].Name, true
}

// Walk yields every member once, as its index in Members, in the order in which their points follow key's position: the
// owner first, then the one that would own the key if the owner were gone, and so on. A loop over it allocates nothing
// on a ring of up to 256 members.
func (r *Ring) Walk(key []byte) iter.Seq[int] {
	return func(yield func(int) bool) { r.walk(key, yield) } // small, so that the caller's loop has it inline
}

func (r *Ring) walk(key []byte, yield func(int) bool) {
	left := r.Len()
	if left == 0 {
		return
	}
	var few [4]uint64
	seen := few[:] // one bit a member
	if left > 64*len(few) {
		seen = make([]uint64, (left+63)/64)
	}
	for i := r.find(position(key)); ; i++ {
		if i == len(r.points) {
			i = 0
		}
		m := r.points[i].member()
		if seen[m/64]>>(m%64)&1 == 1 {
			continue
		}
		seen[m/64] |= 1 << (m % 64)
		left--
		if !yield(m) || left == 0 {
			return
		}
	}
}

// find returns the index of the first point at or after position p, around the ring, which is not empty.
func (r *Ring) find(p uint32) int {
	least := at(p, 0)
	i := int(r.buckets.first[r.buckets.of(least)])
	for i < len(r.points) && r.points[i] < least {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return i
}

// Members returns the members in the order of their names, with weights from 1 to MaxWeight. The caller must not change
// the slice.
func (r *Ring) Members() []Member {
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

// VirtualNodes is how many points a member of weight 100 has; 0 for the zero Ring and a nil one.
func (r *Ring) VirtualNodes() int {
	if r == nil {
		return 0
	}
	return r.virtualNodes
}

// Version is a hash of the members, their weights and the number of virtual nodes: equal sets have equal versions.
func (r *Ring) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}
