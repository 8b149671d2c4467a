package kvcache

// Stats says what a Cache holds now and what it has done since it was made.
type Stats struct {
	// Total = Free + Active + Cached blocks. Active ones belong to a table; Cached ones to idle chains alone.
	Total, Free, Active, Cached int
	// Tables and Idle are sequences in use: of open tables and of idle chains.
	Tables, Idle int
	// Tokens are the computed tokens in active blocks, Waste the room for more in them. Waste / Tokens is the internal waste.
	Tokens, Waste int

	// Queries are the tokens that Open looked up, Hits those that it found.
	Queries, Hits int64
	// Evictions are cached blocks that gave way to others, to a sequence, or to a bound of Options.
	Evictions int64
	// Forks are sequences that began with cells of another; Copies are blocks copied because a table wrote to a shared one.
	Forks, Copies int64
}

// Stats returns the current figures. It is O(1).
func (c *Cache) Stats() Stats {
	s := c.count
	s.Total, s.Free, s.Active, s.Cached = c.o.Blocks, len(c.pool.free), c.pool.active, c.pool.cached
	s.Tables, s.Idle = c.o.Sequences-len(c.freeSeqs)-c.idle, c.idle
	s.Tokens = c.pool.tokens
	s.Waste = s.Active*BlockTokens - s.Tokens
	return s
}
