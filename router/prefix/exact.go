package prefix

// News is what a worker says of a prompt: the first Held of its Blocks are in its cache.
type News struct {
	Hash         uint64 // the last of the prompt's chain
	Blocks, Held int
	// Heir is the last hash of another prompt: from here on the worker says only of that one what becomes of what both have in
	// common. 0: none.
	Heir uint64
}

// SetExact says whether the worker tells when something goes out of its cache. Then nothing of it is forgotten but what Hear
// says and what the index has no room for. Where that changes, all is forgotten: nobody will say what becomes of it. It reports
// whether it does.
func (x *Index) SetExact(s Slot, exact bool) (changed bool) {
	x.mu.Lock()
	if changed = x.is(s) && x.tree.workers[s.number()].exact != exact; changed {
		w := &x.tree.workers[s.number()]
		w.exact, w.limit = exact, w.room
		if exact {
			w.limit = 0
		}
	}
	x.mu.Unlock()
	if changed {
		x.Clear(s)
	}
	return changed
}

// Clear forgets what s has.
func (x *Index) Clear(s Slot) {
	x.each(s, func(w uint16) bool { return x.tree.clear(w) })
}

// Hear takes in what s, which is exact, says of a prompt. What it does not have of that goes, from the prompt's end on to where
// another prompt parts that s has by its own word: of those it speaks for themselves. So every end of what is left is one of
// which s speaks. Prompts that the index does not know to have been sent to any worker are passed over.
func (x *Index) Hear(s Slot, n News) {
	x.each(s, func(w uint16) bool { return x.tree.retreat(w, n) })
}

// Hold notes that s has the first n blocks of prompt c: by its own word, or as a request is on its way.
func (x *Index) Hold(s Slot, c Chain, n int, said bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.is(s) && n > 0 {
		w := s.number()
		if x.tree.ends.find(c[len(c)-1]) == 0 {
			x.tree.vacate(w, c[len(c)-1])
		}
		x.tree.put(w, c[:n], said)
		x.tree.noteEnd(w, c, n, false)
	}
}

// Withdraw takes back of c what s does not have by its own word, and all behind that.
func (x *Index) Withdraw(s Slot, c Chain) {
	x.each(s, func(w uint16) bool { return x.tree.withdraw(w, c) })
}

// each calls something for s until there is no more to do, and lets others in between.
func (x *Index) each(s Slot, do func(w uint16) bool) {
	for more := true; more; {
		x.mu.Lock()
		more = x.is(s) && do(s.number())
		x.mu.Unlock()
	}
}

// leading is how many leading blocks of c worker w has.
func (t *tree) leading(w uint16, c Chain) int {
	t.match(c)
	return t.depth(w)
}

// withdraw leaves worker w of c what has settled, a batch at a time. It reports whether there is more to take.
func (t *tree) withdraw(w uint16, c Chain) bool {
	var last uint32
	for at := 0; at < len(c); {
		id := t.find(c[at])
		if id == 0 || t.run(id).parent != last {
			return false
		}
		h := t.held(id, w)
		if h == 0 {
			return false
		}
		r, settled := t.run(id), int(t.hold(h).settled)
		same := r.common(c[at:])
		if settled < same {
			return t.cut(h, settled)
		}
		if same < int(r.n) {
			return false
		}
		last = id
		at += same
	}
	return false
}

// retreat leaves worker w of a prompt what it says, or what it has of others, a batch at a time. It reports whether there is more
// to take.
func (t *tree) retreat(w uint16, n News) bool {
	e := t.ends.find(n.Hash)
	if e == 0 {
		return false
	}
	is := *t.ends.at(e)
	if int(is.blocks) != n.Blocks {
		return false
	}
	keep := n.Held
	if n.Heir != 0 {
		keep = min(keep, t.common(is, t.ends.find(n.Heir)))
	}
	for id, end, at := is.run, int(is.depth), int(is.at); id != 0 && end > keep; {
		begin, up := end-at, t.run(id).parent
		if h := t.held(id, w); h != 0 {
			if t.spoken(h, at) {
				return false
			}
			if t.cut(h, max(0, keep-begin)) {
				return true
			}
		}
		if id, end = up, begin; id != 0 {
			at = int(t.run(id).n)
		}
	}
	return false
}

// common is how many blocks a prompt has in common with the one that is noted as id.
func (t *tree) common(a end, id uint32) int {
	if id == 0 {
		return 0
	}
	b := *t.ends.at(id)
	for a.run != b.run {
		x := &a
		if b.depth-uint16(b.at) > a.depth-uint16(a.at) {
			x = &b
		}
		x.depth -= uint16(x.at)
		if x.run = t.run(x.run).parent; x.run == 0 {
			return 0
		}
		x.at = t.run(x.run).n
	}
	return int(min(a.depth, b.depth))
}

// spoken reports whether the worker of hold h has something behind its first n blocks by its own word.
func (t *tree) spoken(h uint32, n int) bool {
	if int(t.hold(h).settled) > n {
		return true
	}
	for d := t.hold(h).down; d != 0; d = t.hold(d).right {
		if t.hold(d).settled > 0 {
			return true
		}
	}
	return false
}

// cut leaves a worker the first n blocks of hold h, if it has more, and nothing behind it, a batch at a time. It reports whether
// there is more to take.
func (t *tree) cut(h uint32, n int) bool {
	if int(t.hold(h).have) <= n {
		return false
	}
	at := h
	for left := batch; t.hold(h).down != 0; left-- {
		if left == 0 {
			return true
		}
		for t.hold(at).down != 0 {
			at = t.hold(at).down
		}
		up := t.hold(at).up
		t.release(at)
		at = up
	}
	if n > 0 {
		t.lower(t.hold(h), n)
	} else {
		t.release(h)
	}
	return false
}

// hang puts hold h among those of its worker behind hold up; 0: it is at the beginning of a prompt.
func (t *tree) hang(h, up uint32) {
	is := t.hold(h)
	is.up, is.left, is.right = up, 0, 0
	if up == 0 {
		return
	}
	if is.right = t.hold(up).down; is.right != 0 {
		t.hold(is.right).left = h
	}
	t.hold(up).down = h
}

// unhang takes hold h, behind which there is none, from among them.
func (t *tree) unhang(h uint32) {
	is := t.hold(h)
	t.swap(is, is.right, is.left)
}

// swap gives the neighbours of a hold others in its place: right to the one before it, left to the one behind it.
func (t *tree) swap(is *hold, right, left uint32) {
	switch {
	case is.left != 0:
		t.hold(is.left).right = right
	case is.up != 0:
		t.hold(is.up).down = right
	}
	if is.right != 0 {
		t.hold(is.right).left = left
	}
}
