package prefix

// worker is what is known of a worker's cache.
type worker struct {
	order   list   // its holds, by last use
	blocks  int    // that it is thought to have
	room    int    // that its cache has room for; 0 is unknown
	limit   int    // that are believed to last: at most room; 0 is no limit
	shrinks uint32 // how often limit was lowered
	exact   bool   // it says itself what goes out of its cache, and there is no limit
}

const (
	// slack is by how much an answer may fall short of what was thought without meaning anything, beside an eighth of it:
	// blocks are bytes here and tokens there, and some engines share a prefix in steps of 256 tokens.
	slack = 16
	// growth is what every good answer adds to a limit that had been lowered, beside 1/128 of it. An answer that falls
	// short takes an eighth: where one in about 17 does, the limit stays where it is.
	growth = 16
	// unlimited is how far a limit grows when the room is unknown.
	unlimited = 1 << 30
)

// resize sets the room. What was learnt about a share of the room that lasts is kept as that share.
func (w *worker) resize(room int) {
	switch {
	case w.exact:
	case w.limit == w.room:
		w.limit = room
	case room == 0:
	case w.room == 0:
		w.limit = min(w.limit, room)
	default:
		w.limit = min(max(int(float64(w.limit)/float64(w.room)*float64(room)), 1), room)
	}
	w.room = room
}

// learn adapts the limit to an answer: the worker had the first cached blocks of a prompt of which claim says what was
// thought. Requests that were sent before the limit was lowered do not lower it again: they were sent on the same error.
func (w *worker) learn(claim Claim, cached int) {
	if claim.Known-cached > slack+claim.Known/8 {
		if claim.shrinks != w.shrinks {
			return
		}
		held := w.blocks
		if w.limit > 0 {
			held = min(held, w.limit)
		}
		w.limit = max(held*7/8, 1)
		w.shrinks++
		return
	}
	if cached == 0 || w.limit == 0 {
		return
	}
	most := w.room
	if most == 0 {
		most = unlimited
	}
	w.limit = min(w.limit+w.limit/128+growth, most)
}
