package ring

import (
	"math/bits"
	"slices"
)

// point is one virtual node: its position in the upper 32 bits, its member's index in the lower ones. So points are in
// order by position, and at one position by the names of their members.
type point uint64

func at(position uint32, member int) point { return point(position)<<32 | point(uint32(member)) }

func (p point) position() uint32 { return uint32(p >> 32) }

func (p point) member() int { return int(uint32(p)) }

// appendPoints appends the points of m, whose index is member.
func appendPoints(points []point, m Member, member, virtualNodes int) []point {
	var room [260]byte // the name of any pod fits
	node := room[:0]
	for i := range m.points(virtualNodes) {
		node = appendNode(node[:0], m.Name, i)
		points = append(points, at(position(node), member))
	}
	return points
}

// buckets cut the positions into equal parts, at least as many as there are points, so that a lookup that begins at its
// bucket passes about one point.
type buckets struct {
	first []uint32 // index of the first point in a bucket or after it; one more entry ends the last bucket
	shift uint     // a point's bucket is what it has above this many bits
}

// of is the bucket of p; there are no buckets without points.
func (b buckets) of(p point) int { return int(p >> (b.shift & 63)) } // the mask spares a check

// cut returns the buckets for points, which need not be sorted.
func cut(points []point) buckets {
	width := bits.Len(uint(len(points)))
	b := buckets{first: make([]uint32, 1<<width+1), shift: uint(64 - width)}
	for _, p := range points {
		b.first[b.of(p)+1]++
	}
	sum := uint32(0)
	for i, n := range b.first {
		sum += n
		b.first[i] = sum
	}
	return b
}

// arrange returns points sorted, and their buckets. Each goes to its bucket at once; what is left to sort is small.
func arrange(points []point) ([]point, buckets) {
	b := cut(points)
	sorted := make([]point, len(points))
	next := slices.Clone(b.first)
	for _, p := range points {
		i := b.of(p)
		sorted[next[i]] = p
		next[i]++
	}
	for i := 1; i < len(b.first); i++ {
		if part := sorted[b.first[i-1]:b.first[i]]; len(part) > 1 {
			slices.Sort(part)
		}
	}
	return sorted, b
}
