package placement

// RoundRobin takes the workers in turn, by name. The turn is the model's, so requests for other models don't disturb it.
type RoundRobin struct{}

// Name is for Policy.
func (RoundRobin) Name() string { return "RoundRobin" }

// Choose is for Policy. One that can't take the request loses its turn to the next that can.
func (RoundRobin) Choose(s *Snapshot) int {
	best, nearest := -1, 0
	for i := range s.Candidates {
		if s.Candidates[i].Beyond {
			continue
		}
		steps := (s.Candidates[i].Member - s.Last - 1) % s.Members
		if steps < 0 {
			steps += s.Members
		}
		if best < 0 || steps < nearest {
			best, nearest = i, steps
		}
	}
	return best
}
