package prefix

// News is what a worker says of a prompt: the first Held of its Blocks are in its cache, or will be. Number orders what it
// says.
type News struct {
	Hash         uint64 // the last of the prompt's chain
	Blocks, Held int
	Number       uint64
}

// Sent is a request whose prompt a worker says that it has from a number on.
type Sent struct {
	Chain  Chain
	Number uint64
}

// SetExact says whether the worker tells when something goes out of its cache. From then on nothing of it is forgotten but what
// Hear says and what the index has no room for. When it tells no more, the room of its cache bounds again what it is thought
// to have.
func (x *Index) SetExact(s Slot, exact bool) {
	x.mu.Lock()
	more := false
	if x.is(s) {
		if w := &x.tree.workers[s.number()]; w.exact != exact {
			w.exact, w.limit = exact, w.room
			if exact {
				w.limit = 0
			}
			more = x.tree.trim(s.number())
		}
	}
	x.mu.Unlock()
	x.trim(s, more)
}

// Hear takes in what s says has gone from its cache, and that it has the prompts of sent: both in the order of their numbers.
// What was computed behind a block that is gone is of no use without it, so it counts as gone too, whatever prompt it is of.
// Prompts that the index does not know to have been sent to any worker are passed over.
func (x *Index) Hear(s Slot, news []News, sent []Sent) {
	for _, n := range news {
		if n.Held >= n.Blocks {
			continue
		}
		for len(sent) > 0 && sent[0].Number < n.Number {
			x.has(s, sent[0].Chain)
			sent = sent[1:]
		}
		x.cut(s, func(w uint16) bool { return x.tree.cut(w, n.Hash, n.Blocks, n.Held) })
	}
	for _, q := range sent {
		x.has(s, q.Chain)
	}
}

// Withdraw takes back what Insert noted of a request that s has never taken in. sent are its other requests.
func (x *Index) Withdraw(s Slot, c Chain, claim Claim, sent []Sent) {
	x.cut(s, func(w uint16) bool { return x.tree.cutChain(w, c, claim.had) })
	x.Hear(s, nil, sent)
}

// cut calls a cut of the tree until there is no more to take, and lets others in between.
func (x *Index) cut(s Slot, cut func(w uint16) bool) {
	for more := true; more; {
		x.mu.Lock()
		more = x.is(s) && cut(s.number())
		x.mu.Unlock()
	}
}

// has notes that s has all of c.
func (x *Index) has(s Slot, c Chain) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.is(s) {
		x.tree.put(s.number(), c, false)
		x.tree.noteEnd(s.number(), c)
	}
}

// leading is how many leading blocks of c worker w has.
func (t *tree) leading(w uint16, c Chain) int {
	t.match(c)
	return t.depth(w)
}

// cutChain leaves worker w the first n blocks of c, as cut does.
func (t *tree) cutChain(w uint16, c Chain, n int) bool {
	var last uint32
	for at := 0; at < len(c); {
		id := t.find(c[at])
		if id == 0 || t.run(id).parent != last {
			return false
		}
		r := t.run(id)
		same := r.common(c[at:])
		if n < at+same {
			return t.cutRun(w, id, n-at)
		}
		if same < int(r.n) {
			return false
		}
		last = id
		at += same
	}
	return false
}

// cutRun leaves worker w the first n blocks of a run, fewer than that has, and nothing behind it, as cut does.
func (t *tree) cutRun(w uint16, id uint32, n int) bool {
	h := t.held(id, w)
	if h == 0 || int(t.hold(h).have) <= n {
		return false
	}
	for left := batch; t.hold(h).down != 0; left-- {
		if left == 0 {
			return true
		}
		leaf := t.hold(h).down
		for t.hold(leaf).down != 0 {
			leaf = t.hold(leaf).down
		}
		t.release(leaf)
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
