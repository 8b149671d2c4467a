package prefix

import (
	"errors"
	"fmt"
	"slices"
)

// reference is the index without any thought of speed: each worker is a set of blocks with the time of their last use.
type reference struct {
	clock   int
	workers map[Slot]*refWorker
	before  map[uint64]uint64 // of each block the one before it
}

type refWorker struct {
	blocks map[uint64]*refBlock
	limit  int
}

type refBlock struct {
	used    int
	settled bool
}

func (r *reference) worker(s Slot) *refWorker {
	if r.workers == nil {
		r.workers = map[Slot]*refWorker{}
	}
	if r.workers[s] == nil {
		r.workers[s] = &refWorker{blocks: map[uint64]*refBlock{}}
	}
	return r.workers[s]
}

// put uses all of c, its end first, so that its end is also what goes first.
func (r *reference) put(s Slot, c Chain, settled bool) {
	w := r.worker(s)
	if r.before == nil {
		r.before = map[uint64]uint64{}
	}
	for i := len(c) - 1; i >= 0; i-- {
		r.clock++
		if i > 0 {
			r.before[c[i]] = c[i-1]
		}
		if w.blocks[c[i]] == nil {
			w.blocks[c[i]] = &refBlock{}
		}
		w.blocks[c[i]].used = r.clock
		w.blocks[c[i]].settled = w.blocks[c[i]].settled || settled
	}
}

// cut takes block n of c and all that is behind it, in whatever prompt.
func (r *reference) cut(s Slot, c Chain, n int) {
	w := r.worker(s)
	for h := range w.blocks {
		for at, ok := h, true; ok; at, ok = r.before[at] {
			if at == c[n] {
				delete(w.blocks, h)
				break
			}
		}
	}
}

// retreat takes the blocks of c beyond the first keep, from depth on to where another one that has settled is behind.
func (r *reference) retreat(s Slot, c Chain, depth, keep int) {
	w := r.worker(s)
	for n := depth - 1; n >= keep; n-- {
		for h, b := range w.blocks {
			if r.before[h] == c[n] && b.settled {
				return
			}
		}
		r.cut(s, c, n)
	}
}

func (w *refWorker) trim(limit int) {
	w.limit = limit
	if limit == 0 || len(w.blocks) <= limit {
		return
	}
	hashes := make([]uint64, 0, len(w.blocks))
	for h := range w.blocks {
		hashes = append(hashes, h)
	}
	slices.SortFunc(hashes, func(a, b uint64) int { return w.blocks[a].used - w.blocks[b].used })
	for _, h := range hashes[:len(hashes)-limit] {
		delete(w.blocks, h)
	}
}

// leading is how many blocks at the beginning of c the worker has, and how many of them without a gap have settled.
func (w *refWorker) leading(c Chain) (has, settled int) {
	for _, h := range c {
		b := w.blocks[h]
		if b == nil {
			break
		}
		if has == settled && b.settled {
			settled++
		}
		has++
	}
	return has, settled
}

// sound checks every rule that the tree must keep between operations.
func sound(t *tree) error {
	age := map[uint32]int{} // of runs, 0 is the newest
	var before uint32
	for id := t.order.newest; id != 0; id = t.runIDs.at(id).older {
		if t.runIDs.at(id).newer != before {
			return fmt.Errorf("run %d does not know the run before it in the order", id)
		}
		age[id], before = len(age), id
	}
	if before != t.order.oldest || len(age) != t.runIDs.out {
		return fmt.Errorf("%d runs are in order, %d are out", len(age), t.runIDs.out)
	}
	if t.runIDs.out > t.runIDs.most || t.holdIDs.out > t.holdIDs.most {
		return fmt.Errorf("%d runs of %d, %d holds of %d", t.runIDs.out, t.runIDs.most, t.holdIDs.out, t.holdIDs.most)
	}
	cells := 0
	for _, c := range t.table.cells {
		if c != 0 {
			cells++
		}
	}
	if cells != len(age) {
		return fmt.Errorf("the table has %d cells for %d runs", cells, len(age))
	}
	holdAge, err := soundWorkers(t)
	if err != nil {
		return err
	}
	children := map[uint32]uint32{}
	for id := range age {
		if p := t.run(id).parent; p != 0 {
			children[p]++
		}
	}
	for id := range age {
		err = errors.Join(err, soundRun(t, id, age, holdAge, children[id]))
	}
	return errors.Join(err, soundEnds(t, age))
}

// soundWorkers returns the age of every hold among those of its worker.
func soundWorkers(t *tree) (map[uint32]int, error) {
	age := map[uint32]int{}
	total := 0
	for n := range t.workers {
		w := &t.workers[n]
		blocks := 0
		var before uint32
		for h := w.order.newest; h != 0; h = t.holdIDs.at(h).older {
			if int(t.hold(h).worker) != n || t.holdIDs.at(h).newer != before {
				return nil, fmt.Errorf("hold %d of worker %d is in the wrong place", h, n)
			}
			age[h], before = len(age), h
			blocks += int(t.hold(h).have)
		}
		if before != w.order.oldest || blocks != w.blocks {
			return nil, fmt.Errorf("worker %d counts %d blocks and has %d", n, w.blocks, blocks)
		}
		if w.limit > 0 && blocks > w.limit {
			return nil, fmt.Errorf("worker %d has %d blocks, its limit is %d", n, blocks, w.limit)
		}
		total += blocks
	}
	if int64(total) != t.blocks || len(age) != t.holdIDs.out {
		return nil, fmt.Errorf("%d blocks and %d holds are counted, %d and %d are there", t.blocks, t.holdIDs.out, total, len(age))
	}
	return age, nil
}

func soundRun(t *tree, id uint32, age, holdAge map[uint32]int, children uint32) error {
	r := t.run(id)
	if r.n < 1 || r.n > runBlocks || t.find(r.hashes[0]) != id || r.children != children {
		return fmt.Errorf("run %d: %d blocks, found as %d, %d children of %d", id, r.n, t.find(r.hashes[0]), r.children, children)
	}
	if r.parent != 0 {
		if a, ok := age[r.parent]; !ok || a > age[id] {
			return fmt.Errorf("run %d is newer than the one before it, %d", id, r.parent)
		}
	}
	n, before := 0, uint32(0)
	for h := r.first; h != 0; h = t.hold(h).next {
		is := t.hold(h)
		_, known := holdAge[h]
		if !known || is.run != id || is.prev != before || is.have < 1 || is.have > r.n || is.settled > is.have {
			return fmt.Errorf("hold %d on run %d of %d blocks: %+v", h, id, r.n, *is)
		}
		if err := soundPlace(t, h, r.parent); err != nil {
			return err
		}
		if r.parent != 0 {
			up := t.held(r.parent, is.worker)
			if up == 0 || t.hold(up).have != t.run(r.parent).n || holdAge[up] > holdAge[h] {
				return fmt.Errorf("worker %d has run %d, but not what is before it", is.worker, id)
			}
			if is.settled > 0 && t.hold(up).settled != t.hold(up).have {
				return fmt.Errorf("worker %d has settled in run %d, but not before it", is.worker, id)
			}
		}
		n, before = n+1, h
	}
	if n == 0 || n != int(r.holds) {
		return fmt.Errorf("run %d counts %d holds and has %d", id, r.holds, n)
	}
	return nil
}

// soundPlace checks where hold h hangs; parent is the run before its own.
func soundPlace(t *tree, h, parent uint32) error {
	is, up := t.hold(h), uint32(0)
	if parent != 0 {
		up = t.held(parent, is.worker)
	}
	if is.up != up || up == 0 && is.left+is.right != 0 {
		return fmt.Errorf("hold %d hangs behind %d, not %d", h, is.up, up)
	}
	if up != 0 && is.left == 0 && t.hold(up).down != h || is.left != 0 && t.hold(is.left).right != h || is.right != 0 && t.hold(is.right).left != h {
		return fmt.Errorf("hold %d is not where its neighbours think", h)
	}
	if d := is.down; d != 0 && (t.hold(d).up != h || t.hold(d).left != 0) {
		return fmt.Errorf("hold %d does not hang first behind hold %d", d, h)
	}
	return nil
}

// soundEnds checks that every known prompt ends where the tree says, and that the runs know it.
func soundEnds(t *tree, age map[uint32]int) error {
	listed := map[uint32]uint32{}
	for run := range age {
		for id := t.run(run).ends; id != 0; id = t.ends.at(id).next {
			listed[id] = run
		}
	}
	known := 0
	for i := range t.ends.ring {
		is := &t.ends.ring[i]
		if is.run == 0 {
			continue
		}
		known++
		depth := int(is.at)
		for up := t.run(is.run).parent; up != 0; up = t.run(up).parent {
			depth += int(t.run(up).n)
		}
		if listed[uint32(i+1)] != is.run || t.ends.find(is.hash) != uint32(i+1) || is.at < 1 || is.at > t.run(is.run).n || depth != int(is.depth) {
			return fmt.Errorf("prompt %x ends at %d blocks, %d of run %d: %+v", is.hash, depth, is.at, is.run, *is)
		}
	}
	if known != len(listed) {
		return fmt.Errorf("%d prompts are known, the runs know %d", known, len(listed))
	}
	return nil
}
