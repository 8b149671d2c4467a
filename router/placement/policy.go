package placement

// Policy chooses a worker. It is a pure function: equal snapshots give equal choices.
type Policy interface {
	// Name is what it is asked for by, and what stands in the reason of its choices.
	Name() string
	// Choose returns the index of the candidate that takes the request, or -1 for none. It must not keep s, which the
	// board changes afterwards, and is called under the lock of the model's work: it must return at once.
	Choose(s *Snapshot) int
}

// DefaultPolicy is the name of the policy that is used when nothing else is asked for.
const DefaultPolicy = "LeastPredictedTTFT"

// policies are all there are. To add one, write its file and name it here.
var policies = []Policy{LeastPredictedTTFT{}, ConsistentHash{}, LeastLoaded{}, RoundRobin{}}

// ByName returns the policy of that name.
func ByName(name string) (Policy, bool) {
	for _, p := range policies {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// Names are the names of all policies, the default one first.
func Names() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name()
	}
	return names
}
