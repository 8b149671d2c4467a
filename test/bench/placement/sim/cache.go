package sim

// Cache is a worker's cache of prefixes: blocks by their ids, of which the least recently used give way. Within one
// prompt the first block counts as the most recently used, so that a prefix outlives what follows it.
type Cache struct {
	room  int
	at    map[uint64]int32
	nodes []node // nodes[0] begins and ends the list: next is the most recently used one, before the least
}

type node struct {
	id           uint64
	next, before int32
}

// NewCache returns an empty cache with room for a number of blocks, 1 or more.
func NewCache(room int) *Cache {
	return &Cache{room: room, at: make(map[uint64]int32, room), nodes: make([]node, 1, room+1)}
}

// Len is the number of blocks that it holds.
func (c *Cache) Len() int { return len(c.at) }

// Match is how many leading blocks of ids it holds. It changes nothing.
func (c *Cache) Match(ids []uint64) int {
	for i, id := range ids {
		if _, ok := c.at[id]; !ok {
			return i
		}
	}
	return len(ids)
}

// Use makes ids the most recently used blocks. Of more than it has room for it takes the leading ones.
func (c *Cache) Use(ids []uint64) {
	for i := min(len(ids), c.room) - 1; i >= 0; i-- {
		c.use(ids[i])
	}
}

func (c *Cache) use(id uint64) {
	n, ok := c.at[id]
	switch {
	case ok:
		c.unlink(n)
	case len(c.at) < c.room:
		n = int32(len(c.nodes))
		c.nodes = append(c.nodes, node{})
	default:
		n = c.nodes[0].before
		delete(c.at, c.nodes[n].id)
		c.unlink(n)
	}
	c.at[id] = n
	first := c.nodes[0].next
	c.nodes[n] = node{id: id, next: first}
	c.nodes[first].before = n
	c.nodes[0].next = n
}

func (c *Cache) unlink(n int32) {
	next, before := c.nodes[n].next, c.nodes[n].before
	c.nodes[before].next = next
	c.nodes[next].before = before
}
