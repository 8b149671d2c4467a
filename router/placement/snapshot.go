package placement

// Snapshot is what is known at the moment of a choice, as plain numbers.
type Snapshot struct {
	// PromptTokens is the length of the prompt, as far as it is known.
	PromptTokens float64
	// Members is how many workers are in the ring, and Last the place of the one that got the model's latest request
	// among them, by name; -1 before the first.
	Members, Last int
	// Candidates are those that may take the request, in the order of the ring's walk from its key.
	Candidates []Candidate
}

// Candidate is a worker at the moment of a choice.
type Candidate struct {
	// Member is its place among the members of the ring, by name; Rank its place in the walk from the request's key, in
	// which the owner has 0.
	Member, Rank int
	// Handicap says why others are taken before it: the sum of the reasons' numbers.
	Handicap Handicap
	// Small: its KV cache can never have room for the request. Full: it has none now. Starting: it is new, and has all
	// that it may have for now.
	Small, Full, Starting bool
	// Beyond: it has its share of the requests. It is among the candidates because it has less than Free, and so many are
	// no load for it.
	Beyond bool
	// Load is how many requests it has, of all routers as far as they are known; Weight its share of them, 100 the usual;
	// Free how many it may have whatever its share is.
	Load, Weight, Free int
	// Ahead is the tokens of other prompts that it has still to compute.
	Ahead float64
	// Cached is the tokens of this prompt that the index thinks it has; Uncached those that it will have to compute.
	Cached, Uncached float64
	// Wait is how long it will take until it begins with this prompt, and Prefill how long to compute it, in seconds.
	Wait, Prefill float64
}

// Handicap is one or more reasons to take another worker.
type Handicap int

// The reasons, each worse than those before it together: a worker that lacks the adapter will refuse.
const (
	HandicapSuspect Handicap = 1 << iota
	HandicapEjected
	HandicapAdapter
)

// leastBound is what the bound on load never goes below: with fewer requests than workers, two that belong together may
// share one.
const leastBound = 2

// A quarter of a worker's seats, but no more than mostFree, may be taken whatever its share is, if it makes tokens as fast as
// others: where requests are few, their numbers differ by chance, and with so few no worker is loaded. Held to the share
// alone, conversations are driven from workers on which they would wait for nothing.
const (
	freePercent = 25
	mostFree    = 16
)

// eligible keeps those that may take the request, in their order, and says how many can't for want of room. Of the least
// handicapped, which are the only ones that count, those that are not too small, or all where all are: these refuse it. Of
// these, those that have room; of these, new workers below their limit and others, or all where none is left; of these,
// those within the bound on load, which always leaves one, and those on which requests are no load. Where nobody has room,
// an answer that has begun goes to one of the full ones and waits there: it would be lost otherwise. It reuses c.
func eligible(c []Candidate, maxLoadPercent int, begun bool) (left []Candidate, full int) {
	least := HandicapSuspect | HandicapEjected | HandicapAdapter
	for i := range c {
		least = min(least, c[i].Handicap)
	}
	c = keep(c, func(c *Candidate) bool { return c.Handicap == least })
	c = prefer(c, func(c *Candidate) bool { return !c.Small })
	for i := range c {
		if c[i].Full {
			full++
		}
	}
	if full < len(c) {
		c = keep(c, func(c *Candidate) bool { return !c.Full })
	} else if !begun {
		return nil, full
	}
	c = prefer(c, func(c *Candidate) bool { return !c.Starting })
	return bounded(c, maxLoadPercent), full
}

// bounded keeps the candidates that stay within maxLoadPercent of their share of all the requests that candidates have,
// this one among them, and those that have less than is free. It always leaves one that is not beyond its share: if all
// were, they would have more than there is.
func bounded(c []Candidate, maxLoadPercent int) []Candidate {
	requests, weights := 1, 0
	for i := range c {
		requests += c[i].Load
		weights += c[i].Weight
	}
	return keep(c, func(c *Candidate) bool {
		c.Beyond = c.Load >= bound(requests, c.Weight, weights, maxLoadPercent)
		return !c.Beyond || c.Load < c.Free
	})
}

// bound is the most requests that a worker of weight may have when there are so many for workers of all weights together:
// ⌈maxLoadPercent/100 × its share⌉.
func bound(requests, weight, weights, maxLoadPercent int) int {
	whole := 100 * weights
	return max(leastBound, (requests*weight*maxLoadPercent+whole-1)/whole)
}

// prefer keeps those that are ok, in place, or all where none is.
func prefer(c []Candidate, ok func(*Candidate) bool) []Candidate {
	for i := range c {
		if ok(&c[i]) {
			return keep(c, ok)
		}
	}
	return c
}

// keep keeps those that are ok, in place.
func keep(c []Candidate, ok func(*Candidate) bool) []Candidate {
	n := 0
	for i := range c {
		if !ok(&c[i]) {
			continue
		}
		if n < i {
			c[n] = c[i]
		}
		n++
	}
	return c[:n]
}
