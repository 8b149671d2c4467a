package prefix

// ends says where in the tree a prompt lies of which only the last hash is told: those that were sent last, and each as far as
// any worker has it. What was sent longest ago makes room.
type ends struct {
	table table
	ring  []end // by id
	next  int
	// losers are workers that nobody can hear any more: scratch of vacate.
	losers []uint16
}

// end is where a prompt ends, or where in the tree what anybody still has of it does.
type end struct {
	hash       uint64 // the prompt's last
	run        uint32 // 0: nothing is noted
	prev, next uint32 // of the same run
	depth      uint16 // blocks of the prompt up to here
	blocks     uint16 // of the whole prompt
	at         uint8  // blocks of the run up to here
}

const endSize = 32

// newEnds returns room for n prompts.
func newEnds(n int) ends { return ends{table: newTable(n), ring: make([]end, n)} }

func (e *ends) at(id uint32) *end { return &e.ring[id-1] }

// find returns the id of a prompt, 0 if it is not known.
func (e *ends) find(hash uint64) uint32 {
	tag := e.table.tag(hash)
	for at := e.table.home(tag); ; at = (at + 1) & e.table.mask() {
		cell := e.table.cells[at]
		if cell == 0 {
			return 0
		}
		if id := uint32(cell); uint32(cell>>32) == tag && e.at(id).hash == hash {
			return id
		}
	}
}

// vacate makes the next place free for a prompt of a worker that is exact, before it is put. Of the one that was sent longest ago
// nobody could find any more what workers say: so where they have nothing behind its end, that is taken from them.
func (t *tree) vacate(w uint16, hash uint64) {
	id := uint32(t.ends.next + 1)
	is := t.ends.at(id)
	if !t.workers[w].exact || is.run == 0 || is.hash == hash {
		return
	}
	t.ends.losers = t.ends.losers[:0]
	for run := is.run; run != 0; run = t.run(run).parent {
		for h := t.run(run).first; h != 0; h = t.hold(h).next {
			if of := t.hold(h); of.down == 0 && t.workers[of.worker].exact {
				t.ends.losers = append(t.ends.losers, of.worker)
			}
		}
	}
	gone := News{Hash: is.hash, Blocks: int(is.blocks)}
	for _, w := range t.ends.losers {
		for t.retreat(w, gone) {
			continue
		}
	}
	t.forgetEnd(id)
}

// noteEnd notes where the first n blocks of prompt c end, which were put last, if worker w may speak of it. With sent it takes the
// place that vacate has made.
func (t *tree) noteEnd(w uint16, c Chain, n int, sent bool) {
	if t.last == 0 || !t.workers[w].exact {
		return
	}
	hash := c[len(c)-1]
	id := t.ends.find(hash)
	switch {
	case id != 0 && !sent && int(t.ends.at(id).depth) >= n:
		return // somebody has as much
	case id != 0 && !sent:
		t.unlinkEnd(id)
	case id != 0:
		t.forgetEnd(id)
		fallthrough
	default:
		id = uint32(t.ends.next + 1)
		t.ends.next = (t.ends.next + 1) % len(t.ends.ring)
		t.forgetEnd(id)
		t.ends.table.add(hash, id)
	}
	*t.ends.at(id) = end{hash: hash, depth: uint16(n), blocks: uint16(len(c)), at: t.lastAt}
	t.linkEnd(id, t.last)
}

// forgetEnd frees a place of a prompt, if there is one.
func (t *tree) forgetEnd(id uint32) {
	if is := t.ends.at(id); is.run != 0 {
		t.unlinkEnd(id)
		t.ends.table.remove(is.hash, id)
		is.run = 0
	}
}

func (t *tree) linkEnd(id, run uint32) {
	r, is := t.run(run), t.ends.at(id)
	is.run, is.prev, is.next = run, 0, r.ends
	if r.ends != 0 {
		t.ends.at(r.ends).prev = id
	}
	r.ends = id
}

func (t *tree) unlinkEnd(id uint32) {
	is := t.ends.at(id)
	if is.prev != 0 {
		t.ends.at(is.prev).next = is.next
	} else {
		t.run(is.run).ends = is.next
	}
	if is.next != 0 {
		t.ends.at(is.next).prev = is.prev
	}
}

// partEnds moves the ends in the first n blocks of run tail, which become run head.
func (t *tree) partEnds(tail, head uint32, n int) {
	for id := t.run(tail).ends; id != 0; {
		is := t.ends.at(id)
		next := is.next
		if int(is.at) <= n {
			t.unlinkEnd(id)
			t.linkEnd(id, head)
		} else {
			is.at -= uint8(n)
		}
		id = next
	}
}

// pruneEnds moves the ends of a run up to its first n blocks, as nobody has what follows; with n 0 to the run before it.
func (t *tree) pruneEnds(run uint32, n int) {
	for id := t.run(run).ends; id != 0; {
		is := t.ends.at(id)
		next := is.next
		if less := int(is.at) - n; less > 0 {
			is.depth -= uint16(less)
			is.at = uint8(n)
			switch up := t.run(run).parent; {
			case n > 0:
			case up == 0:
				t.forgetEnd(id)
			default:
				t.unlinkEnd(id)
				is.at = t.run(up).n
				t.linkEnd(id, up)
			}
		}
		id = next
	}
}
