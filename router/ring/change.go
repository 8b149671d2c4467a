package ring

import (
	"math"
	"slices"
)

// Change returns the ring of r's members without those of remove and with those of add, equal to what New makes of
// them: a name of both is in it, and a member whose weight differs from the one in add gets that. Only the points of
// members that join or change are made; the others are merged with them in one pass. r stays as it is, and is the
// answer where nothing changes.
func (r *Ring) Change(add []Member, remove []string) *Ring {
	if r == nil || r.virtualNodes == 0 {
		return New(add, DefaultVirtualNodes)
	}
	p := r.plan(canonical(add), slices.Sorted(slices.Values(remove)))
	if len(p.made) == 0 && len(p.members) == len(r.members) {
		return r
	}
	next := &Ring{members: p.members, virtualNodes: r.virtualNodes, version: version(p.members, r.virtualNodes)}
	made := make([]point, 0, p.size(r.virtualNodes))
	for _, i := range p.made {
		made = appendPoints(made, p.members[i], i, r.virtualNodes)
	}
	made, _ = arrange(made)
	next.points = p.merge(make([]point, 0, next.size()), r.points, made)
	next.buckets = cut(next.points)
	return next
}

// gone is the place of a member whose points do not stay.
const gone = math.MaxUint32

// plan says how one ring becomes another.
type plan struct {
	members []Member // of the other
	place   []uint32 // for each member of the one, its index in members, or gone
	made    []int    // indexes in members of those whose points are to be made, rising
}

// plan takes add as canonical returns it, and remove sorted.
func (r *Ring) plan(add []Member, remove []string) *plan {
	p := &plan{members: make([]Member, 0, len(r.members)+len(add)), place: make([]uint32, len(r.members))}
	for i, m := range r.members {
		for len(add) > 0 && add[0].Name < m.Name {
			p.join(add[0])
			add = add[1:]
		}
		_, removed := slices.BinarySearch(remove, m.Name)
		stays := !removed
		if len(add) > 0 && add[0].Name == m.Name {
			if stays = add[0] == m; !stays {
				p.join(add[0])
			}
			add = add[1:]
		}
		p.place[i] = gone
		if stays {
			p.place[i] = uint32(len(p.members))
			p.members = append(p.members, m)
		}
	}
	for _, m := range add {
		p.join(m)
	}
	return p
}

// size is how many points are to be made.
func (p *plan) size(virtualNodes int) int {
	n := 0
	for _, i := range p.made {
		n += p.members[i].points(virtualNodes)
	}
	return n
}

func (p *plan) join(m Member) {
	p.made = append(p.made, len(p.members))
	p.members = append(p.members, m)
}

// merge appends to dst the points of before that stay, under the new indexes of their members, and those of made, both
// sorted: members that stay keep their order, so their points do too.
func (p *plan) merge(dst, before, made []point) []point {
	for _, b := range before {
		place := p.place[b.member()]
		if place == gone {
			continue
		}
		b = at(b.position(), int(place))
		for len(made) > 0 && made[0] < b {
			dst = append(dst, made[0])
			made = made[1:]
		}
		dst = append(dst, b)
	}
	return append(dst, made...)
}
