package inferencemodel

// A gateChange says what the in-ring gate of a worker becomes.
type gateChange struct {
	w worker
	// instance and container are for whom the gate opens; both are "" when it closes.
	instance, container string
	routers             int
}

func (g gateChange) opens() bool { return g.instance != "" }

// judgeGate says whether w's gate must change. It opens when at least one router is heard and all that are heard have
// the same instance in their rings, unless that instance ended with an earlier container: routers need some heartbeats to
// notice. Then it stays open, whatever routers do, until that instance is gone: its container no longer runs, or a router
// has a fresh report of another one.
func judgeGate(w worker, v View) (gateChange, bool) {
	if !w.live() {
		return gateChange{}, false
	}
	if w.gated {
		return gateChange{w: w}, w.container != w.gatedContainer || replaced(w, v)
	}
	heard := v.heard()
	instance := ""
	for _, r := range heard {
		seen := r.Workers[w.uid]
		if !r.Answered || !seen.InRing || seen.Instance == "" || instance != "" && seen.Instance != instance {
			return gateChange{}, false
		}
		instance = seen.Instance
	}
	ended := instance == w.instance && w.container != w.gatedContainer
	return gateChange{w: w, instance: instance, container: w.container, routers: len(heard)},
		instance != "" && w.container != "" && !ended
}

// replaced reports whether a fresh report speaks of another instance than the one that the gate was opened for.
func replaced(w worker, v View) bool {
	for _, r := range v.Routers {
		seen := r.Workers[w.uid]
		if seen.Instance != "" && seen.Instance != w.instance && seen.Age < SilentAfter {
			return true
		}
	}
	return false
}
