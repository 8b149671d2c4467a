package prefix

// tree is which worker has which beginning of which prompt: a radix tree over the hashes of chains that all workers
// share. It has no lock.
//
// A run is up to runBlocks hashes that follow one another in a chain; a run that ends where chains part has several runs
// behind it. A hash stands for all before it, so a run is found by its first hash wherever it is in a prompt, and is
// equal to a piece of a chain when the last hashes are equal: a prompt of 220 KB takes 58 look-ups and not 3,520.
//
// A hold says that a worker has the leading blocks of a run. Three rules hold between operations: who has a hold on a run
// has all of the run before it; a worker's hold on a run was used no earlier than its holds on the runs behind; and so was
// the run itself. So the oldest hold of a worker, and the oldest run of all, is always the end of a prompt, and what goes
// first is the end of what was used longest ago.
//
// Hashes are not trusted to be honest: equal ones may be crafted. Then a chain is indexed up to there and no further.
type tree struct {
	table  table
	runIDs links
	runs   []*[runPage]run
	order  list // all runs, by last use
	ends   ends
	last   uint32 // the run in which the chain of the last put ended; 0: its end was left out
	lastAt uint8  // blocks of it up to there

	holdIDs links
	holds   []*[holdPage]hold

	workers []worker // by number
	marks   []mark   // by worker
	epoch   uint64   // of the last match
	blocks  int64    // of all workers together
}

const (
	runBlocks = 61 // makes a run 512 bytes
	runSize   = 512
	runPage   = 64
	holdSize  = 32
	holdPage  = 1024
)

type run struct {
	hashes   [runBlocks]uint64 // the first n
	first    uint32            // of the holds
	parent   uint32            // the run before; 0 at the beginning of a prompt
	children uint32
	ends     uint32 // the first of those in it
	holds    uint16
	n        uint8
}

type hold struct {
	run         uint32
	prev, next  uint32 // of the same run
	up, down    uint32 // of the same worker: on the run before, and the first of those on the runs behind
	left, right uint32 // of the same worker, behind the same
	worker      uint16
	have        uint8 // leading blocks of the run
	settled     uint8 // how many of them come from requests that have settled; of an exact worker: are there by its own word
}

// mark is what the last match found out about a worker.
type mark struct {
	epoch uint64
	depth int
}

// newTree returns an empty tree for at most so many runs and holds.
func newTree(runs, holds int) tree {
	return tree{
		table:   newTable(runs),
		runIDs:  newLinks(runs),
		ends:    newEnds(runs),
		runs:    make([]*[runPage]run, 0, pages(runs, runPage)),
		holdIDs: newLinks(holds),
		holds:   make([]*[holdPage]hold, 0, pages(holds, holdPage)),
	}
}

func (t *tree) run(id uint32) *run { return &t.runs[(id-1)/runPage][(id-1)%runPage] }

func (t *tree) hold(id uint32) *hold { return &t.holds[(id-1)/holdPage][(id-1)%holdPage] }

// find returns the run that begins with hash, 0 if there is none.
func (t *tree) find(hash uint64) uint32 {
	tag := t.table.tag(hash)
	for at := t.table.home(tag); ; at = (at + 1) & t.table.mask() {
		cell := t.table.cells[at]
		if cell == 0 {
			return 0
		}
		if id := uint32(cell); uint32(cell>>32) == tag && t.run(id).hashes[0] == hash {
			return id
		}
	}
}

// common is how many leading blocks r and c, which begin with the same hash, have in common.
func (r *run) common(c Chain) int {
	most := min(int(r.n), len(c))
	if r.hashes[most-1] == c[most-1] {
		return most
	}
	same, other := 1, most
	for other-same > 1 {
		if m := (same + other) / 2; r.hashes[m-1] == c[m-1] {
			same = m
		} else {
			other = m
		}
	}
	return same
}

// match finds out how many leading blocks of c each worker has; depth tells it until the next match.
func (t *tree) match(c Chain) {
	t.epoch++
	var last uint32 // the run passed last
	begin, same := 0, 0
	for at := 0; at < len(c); {
		id := t.find(c[at])
		if id == 0 {
			break
		}
		r := t.run(id)
		if r.parent != last {
			break
		}
		// Where the same workers go on, their marks come from further behind.
		if last != 0 && t.run(last).holds != r.holds {
			t.note(last, begin, same)
		}
		last, begin, same = id, at, r.common(c[at:])
		if same < int(r.n) {
			break
		}
		at += same
	}
	if last != 0 {
		t.note(last, begin, same)
	}
}

// note marks those who have a hold on run id, which begins at block begin of a chain and has its first same blocks.
func (t *tree) note(id uint32, begin, same int) {
	for h := t.run(id).first; h != 0; {
		is := t.hold(h)
		t.marks[is.worker] = mark{t.epoch, begin + min(int(is.have), same)}
		h = is.next
	}
}

// depth is how many leading blocks of the chain of the last match worker w has.
func (t *tree) depth(w uint16) int {
	if t.marks[w].epoch != t.epoch {
		return 0
	}
	return t.marks[w].depth
}

// put makes worker w have all of c, used now, and says how many leading blocks it had by requests that had settled. With
// settled, this request has. Where there is no room but for what c itself takes, the end of c is left out.
func (t *tree) put(w uint16, c Chain, settled bool) (known int) {
	var last, lastHold uint32
	t.last = 0
	for at := 0; at < len(c); {
		id := t.step(last, w, c[at:])
		if id == 0 {
			break
		}
		t.runIDs.move(&t.order, id, last)
		h := t.grasp(id, w, lastHold)
		if h == 0 {
			break
		}
		r, is := t.run(id), t.hold(h)
		same := r.common(c[at:])
		known += min(int(is.settled), same) // what is behind a part that has not settled has not either
		same += r.extend(same, c[at+same:])
		t.raise(is, same, settled)
		if at+same == len(c) {
			t.last, t.lastAt = id, uint8(same)
		}
		if same < int(r.n) {
			break // c ends here, or a crafted hash keeps it from parting
		}
		last, lastHold = id, h
		at += same
	}
	return known
}

// step returns the run for the next piece of a chain, rest, behind run last: the one that is there, which ends where rest
// leaves it, or another one; 0 if there is no room, or if the hash belongs to another prompt.
func (t *tree) step(last uint32, w uint16, rest Chain) uint32 {
	id := t.find(rest[0])
	if id == 0 {
		return t.sprout(last, rest)
	}
	r := t.run(id)
	if r.parent != last {
		return 0
	}
	same := r.common(rest)
	if same == int(r.n) {
		return id
	}
	// A worker that has more of the run than this request uses has used the rest longer ago.
	if same < len(rest) || t.has(id, w) > same {
		return t.part(id, same)
	}
	return id
}

// sprout makes a run of the beginning of rest, behind run parent; 0 if there is no room.
func (t *tree) sprout(parent uint32, rest Chain) uint32 {
	if !t.reserve(1, 1, parent) {
		return 0
	}
	id := t.takeRun()
	r := t.run(id)
	r.parent = parent
	r.n = uint8(copy(r.hashes[:], rest))
	if parent != 0 {
		t.run(parent).children++
	}
	t.table.add(r.hashes[0], id)
	t.runIDs.insert(&t.order, id, parent)
	return id
}

// extend lets r, of which a chain has passed same blocks, go on with what follows in the chain, and returns by how much.
func (r *run) extend(same int, rest Chain) int {
	if same < int(r.n) || r.children > 0 {
		return 0
	}
	n := copy(r.hashes[r.n:], rest)
	r.n += uint8(n)
	return n
}

// part makes run id end after its first n blocks: what follows becomes a run behind it, if anybody has it. It returns the
// run that ends there; where that cannot be, because of a crafted hash, the run as it was.
func (t *tree) part(id uint32, n int) uint32 {
	r := t.run(id)
	longer := 0
	for h := r.first; h != 0; h = t.hold(h).next {
		if int(t.hold(h).have) > n {
			longer++
		}
	}
	if longer > 0 && t.find(r.hashes[n]) != 0 {
		return id
	}
	if longer > 0 && t.reserve(1, longer, id) {
		return t.split(id, n)
	}
	// Nobody has what follows, or this is the oldest run of all and its end is what has to go: nothing is behind it.
	for h := r.first; h != 0; h = t.hold(h).next {
		if is := t.hold(h); int(is.have) > n {
			t.lower(is, n)
		}
	}
	t.pruneEnds(id, n)
	r.n = uint8(n)
	return id
}

// split makes the first n blocks of run id a run before it, and returns that one. The ids of what follows stay, so
// nothing behind it has to change.
func (t *tree) split(id uint32, n int) uint32 {
	headID := t.takeRun()
	head, tail := t.run(headID), t.run(id)
	t.table.remove(tail.hashes[0], id)
	head.n, head.parent, head.children = uint8(n), tail.parent, 1
	copy(head.hashes[:], tail.hashes[:n])
	copy(tail.hashes[:], tail.hashes[n:tail.n])
	tail.n -= uint8(n)
	tail.parent = headID
	t.partEnds(id, headID, n)
	t.table.add(head.hashes[0], headID)
	t.table.add(tail.hashes[0], id)
	t.runIDs.insert(&t.order, headID, t.runIDs.at(id).newer)
	for h := tail.first; h != 0; {
		is := t.hold(h)
		next := is.next
		if int(is.have) <= n {
			t.detach(h)
			t.attach(h, headID)
		} else {
			t.divide(h, headID, n)
		}
		h = next
	}
	return headID
}

// divide gives the first n blocks of hold h to a hold on run head.
func (t *tree) divide(h, head uint32, n int) {
	more := t.takeHold()
	is := t.hold(h)
	*t.hold(more) = hold{worker: is.worker, have: uint8(n), settled: min(is.settled, uint8(n)),
		up: is.up, down: h, left: is.left, right: is.right}
	t.swap(is, more, more)
	is.up, is.left, is.right = more, 0, 0
	is.have -= uint8(n)
	is.settled -= t.hold(more).settled
	t.attach(more, head)
	t.holdIDs.insert(&t.workers[is.worker].order, more, t.holdIDs.at(h).newer)
}
