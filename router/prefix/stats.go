package prefix

// Stats is an index in numbers.
type Stats struct {
	Workers  int   // that have a slot
	Blocks   int64 // that workers are thought to have, counted for each of them
	Runs     int   // pieces of chains in the tree
	Holds    int   // of workers on runs
	Bytes    int64 // memory taken; it is not given back
	MaxBytes int64 // the bound on it
}

// Stats returns the index in numbers.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Stats{
		Workers:  len(x.names),
		Blocks:   x.tree.blocks,
		Runs:     x.tree.runIDs.out,
		Holds:    x.tree.holdIDs.out,
		Bytes:    x.tree.bytes() + int64(len(x.slots))*workerSize,
		MaxBytes: x.maxBytes,
	}
}

// WorkerStats is what the index knows of one worker, in blocks.
type WorkerStats struct {
	Blocks   int // that it is thought to have
	Room     int // that its cache has room for; 0 is unknown
	Believed int // that are believed to last there; 0 is no limit
}

// Worker returns what the index knows of one worker; false for a slot that is none.
func (x *Index) Worker(s Slot) (WorkerStats, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.is(s) {
		return WorkerStats{}, false
	}
	w := &x.tree.workers[s.number()]
	return WorkerStats{Blocks: w.blocks, Room: w.room, Believed: w.limit}, true
}
