package placement

// LeastLoaded takes the worker with the fewest requests for its weight, and of equals the first on the ring's walk.
type LeastLoaded struct{}

// Name is for Policy.
func (LeastLoaded) Name() string { return "LeastLoaded" }

// Choose is for Policy.
func (LeastLoaded) Choose(s *Snapshot) int {
	best := -1
	for i := range s.Candidates {
		if s.Candidates[i].Beyond {
			continue
		}
		if best < 0 || lighter(&s.Candidates[i], &s.Candidates[best]) {
			best = i
		}
	}
	return best
}

// lighter reports whether a has fewer requests than b, each for its weight.
func lighter(a, b *Candidate) bool { return a.Load*b.Weight < b.Load*a.Weight }
