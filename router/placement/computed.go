package placement

import (
	"math"
	"sync"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// Prompt is a prompt as a worker's report names it: the hash of its last whole block, and how many blocks it has. Routers
// send both with a request; a worker only repeats them.
type Prompt struct {
	Hash   uint64
	Blocks int
	// Number orders what a worker says; 0: it does not count.
	Number uint64
	// Left says that no request inside has it, and Lost how many of its last blocks are not in the worker's cache then.
	Left bool
	Lost int
	// Heir is the hash of another prompt of which as much is there: from here on the worker says only of that one what becomes
	// of it. 0: none.
	Heir uint64
}

// mostComputed is how many prompts of a model are remembered that reports have named; the oldest go first. Each takes some
// 64 bytes.
const mostComputed = 1 << 15

// computed is which prompts workers have by their own word, whichever router sent them: the index of prefixes has only
// what this router has sent. A later turn of a conversation begins with an earlier one, so its chain holds that one's last
// hash.
type computed struct {
	mu    sync.Mutex // guards what follows and live.named; held for a lookup a block, never while calling another package
	on    map[uint64]copied
	order []uint64 // of their arrival, around
	next  int
}

// copied is the worker that has computed a prompt last, how many blocks of it there are, and how many blocks reports may have
// named of that worker before it has evicted the prompt.
type copied struct {
	live  *live
	held  int
	until int
	era   int // of live, when it was named
}

// add notes what an instance with room for so many blocks has computed; 0: its room is unknown, or it says itself what it
// loses.
func (c *computed) add(l *live, room int, prompts []Prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on == nil {
		c.on = map[uint64]copied{}
	}
	for _, p := range prompts {
		before, again := c.on[p.Hash]
		held := p.Blocks - p.Lost
		if p.Heir != 0 {
			held = 0
		}
		if again && held < p.Blocks {
			if before.live == l {
				before.held = held
				c.on[p.Hash] = before
			}
			continue
		}
		if held <= 0 {
			continue // it is not said to be anywhere
		}
		l.named += max(0, min(p.Blocks, prefix.MaxBlocks))
		until := math.MaxInt
		if room > 0 {
			until = l.named + room
		}
		if !again {
			c.enter(p.Hash)
		}
		c.on[p.Hash] = copied{l, held, until, l.era}
	}
}

// forget drops what an instance has named.
func (c *computed) forget(l *live) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.era++
}

// enter makes room for a hash.
func (c *computed) enter(hash uint64) {
	if len(c.order) < mostComputed {
		c.order = append(c.order, hash)
		return
	}
	delete(c.on, c.order[c.next])
	c.order[c.next] = hash
	c.next = (c.next + 1) % mostComputed
}

// match raises blocks, which is how much of a chain each member is thought to have, to what they have said themselves.
func (c *computed) match(chain prefix.Chain, members []*member, blocks []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.on) == 0 {
		return
	}
	for n := len(chain); n > 0; n-- {
		p, ok := c.on[chain[n-1]]
		if !ok || p.era != p.live.era || p.live.named > p.until {
			continue
		}
		for i, m := range members {
			if m.live == p.live {
				blocks[i] = max(blocks[i], min(n, p.held))
			}
		}
	}
}
