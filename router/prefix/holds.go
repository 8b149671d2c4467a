package prefix

// held returns worker w's hold on run id, 0 if it has none.
func (t *tree) held(id uint32, w uint16) uint32 {
	for h := t.run(id).first; h != 0; {
		is := t.hold(h)
		if is.worker == w {
			return h
		}
		h = is.next
	}
	return 0
}

// has is how many leading blocks of run id worker w has.
func (t *tree) has(id uint32, w uint16) int {
	if h := t.held(id, w); h != 0 {
		return int(t.hold(h).have)
	}
	return 0
}

// grasp returns w's hold on run id, as the one used last or right behind newer, its hold on the run before; one without
// blocks where w had none, 0 where there is no room for it.
func (t *tree) grasp(id uint32, w uint16, newer uint32) uint32 {
	order := &t.workers[w].order
	if h := t.held(id, w); h != 0 {
		t.holdIDs.move(order, h, newer)
		return h
	}
	if !t.reserve(0, 1, id) {
		return 0
	}
	h := t.takeHold()
	*t.hold(h) = hold{worker: w}
	t.attach(h, id)
	t.hang(h, newer)
	t.holdIDs.insert(order, h, newer)
	return h
}

// raise lets a hold have at least n blocks.
func (t *tree) raise(is *hold, n int, settled bool) {
	if more := n - int(is.have); more > 0 {
		is.have = uint8(n)
		t.workers[is.worker].blocks += more
		t.blocks += int64(more)
	}
	if settled {
		is.settled = max(is.settled, uint8(n))
	}
}

// lower leaves a hold its first n blocks.
func (t *tree) lower(is *hold, n int) {
	less := int(is.have) - n
	is.have = uint8(n)
	is.settled = min(is.settled, is.have)
	t.workers[is.worker].blocks -= less
	t.blocks -= int64(less)
}

// release ends hold h, behind which its worker has none, and the run if nobody else has it.
func (t *tree) release(h uint32) {
	id := t.hold(h).run
	t.detach(h)
	t.end(h)
	if t.run(id).first == 0 {
		t.drop(id)
	}
}

// end takes hold h from its worker.
func (t *tree) end(h uint32) {
	is := t.hold(h)
	t.lower(is, 0)
	t.unhang(h)
	t.holdIDs.remove(&t.workers[is.worker].order, h)
	t.holdIDs.give(h)
}

// drop ends a run that has none behind it, and what workers have of it.
func (t *tree) drop(id uint32) {
	r := t.run(id)
	for h := r.first; h != 0; {
		next := t.hold(h).next
		t.end(h)
		h = next
	}
	t.pruneEnds(id, 0)
	t.table.remove(r.hashes[0], id)
	if r.parent != 0 {
		t.run(r.parent).children--
	}
	t.runIDs.remove(&t.order, id)
	t.runIDs.give(id)
}

// attach puts hold h first among those on run id.
func (t *tree) attach(h, id uint32) {
	r, is := t.run(id), t.hold(h)
	is.run, is.prev, is.next = id, 0, r.first
	if r.first != 0 {
		t.hold(r.first).prev = h
	}
	r.first = h
	r.holds++
}

// detach takes hold h from its run.
func (t *tree) detach(h uint32) {
	is := t.hold(h)
	r := t.run(is.run)
	if is.prev != 0 {
		t.hold(is.prev).next = is.next
	} else {
		r.first = is.next
	}
	if is.next != 0 {
		t.hold(is.next).prev = is.prev
	}
	r.holds--
}

// reserve makes room for so many runs and holds by dropping the runs that were used longest ago. It stops at run keep,
// which is in use as are all that are newer, and reports whether there is room.
func (t *tree) reserve(runs, holds int, keep uint32) bool {
	for t.runIDs.spare() < runs || t.holdIDs.spare() < holds {
		if t.order.oldest == keep {
			return false
		}
		t.drop(t.order.oldest)
	}
	return true
}

// takeRun returns an empty run. There is room for it.
func (t *tree) takeRun() uint32 {
	id := t.runIDs.take()
	if int(id) > len(t.runs)*runPage {
		t.runs = append(t.runs, new([runPage]run))
	}
	r := t.run(id)
	r.first, r.parent, r.children, r.ends, r.holds, r.n = 0, 0, 0, 0, 0, 0
	return id
}

// takeHold returns a hold with nothing in it that is known. There is room for it.
func (t *tree) takeHold() uint32 {
	id := t.holdIDs.take()
	if int(id) > len(t.holds)*holdPage {
		t.holds = append(t.holds, new([holdPage]hold))
	}
	return id
}

// batch is how many holds are ended in one go, so that others get their turn.
const batch = 256

// trim takes from worker w what it used longest ago until it has no more than its limit, one batch at most, and reports
// whether there is more to take.
func (t *tree) trim(w uint16) bool {
	for holds := batch; ; holds-- {
		is := &t.workers[w]
		over := is.blocks - is.limit
		if is.limit == 0 || over <= 0 {
			return false
		}
		if holds == 0 {
			return true
		}
		oldest := t.hold(is.order.oldest)
		if int(oldest.have) > over {
			t.lower(oldest, int(oldest.have)-over)
			return false
		}
		t.release(is.order.oldest)
	}
}

// clear takes everything from worker w, one batch at most, and reports whether there is more to take.
func (t *tree) clear(w uint16) bool {
	for holds := batch; t.workers[w].order.oldest != 0; holds-- {
		if holds == 0 {
			return true
		}
		t.release(t.workers[w].order.oldest)
	}
	return false
}

// bytes is the memory that the tree has taken.
func (t *tree) bytes() int64 {
	return int64(len(t.table.cells)+len(t.ends.table.cells))*8 + int64(len(t.ends.ring))*endSize +
		int64(len(t.runs))*runPage*runSize + int64(len(t.holds))*holdPage*holdSize +
		int64(len(t.runIDs.pages)+len(t.holdIDs.pages))*linkPage*linkSize +
		int64(cap(t.runs)+cap(t.holds)+cap(t.runIDs.pages)+cap(t.holdIDs.pages))*8
}
