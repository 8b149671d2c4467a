package placement

import "slices"

// ConsistentHash takes the first worker on the ring's walk from the request's key: its owner, or the next one where that
// has its share of the load already (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam, 2018).
type ConsistentHash struct{}

// Name is for Policy.
func (ConsistentHash) Name() string { return "ConsistentHash" }

// Choose is for Policy. Candidates come in the walk's order.
func (ConsistentHash) Choose(s *Snapshot) int {
	return slices.IndexFunc(s.Candidates, func(c Candidate) bool { return !c.Beyond })
}
