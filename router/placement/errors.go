package placement

import (
	"errors"
	"fmt"
)

var (
	// ErrNoWorker is what errors.Is finds in every *NoWorkerError.
	ErrNoWorker = errors.New("no worker can take the request")
	// ErrNoRoom is what errors.Is finds in a *NoWorkerError when workers could take the request if their KV caches had
	// room: it may be worth waiting for.
	ErrNoRoom = errors.New("no worker has room for the request")
)

// NoWorkerError says that nobody can take a request, and what there is instead.
type NoWorkerError struct {
	Candidates int // pods of the model
	Loaded     int // of them, those that have loaded it
	InRing     int // of them, those that may take requests
	Excluded   int // processes that have been tried for this request
	Unable     int // of those in the ring that have not been tried, the ones that can't go on with a begun answer
	Full       int // of the others, those that have no room now and could have
}

// Error names the counts.
func (e *NoWorkerError) Error() string {
	why := ErrNoWorker
	if e.Full > 0 {
		why = ErrNoRoom
	}
	s := fmt.Sprintf("%s: of %d workers %d have loaded the model and %d are in the ring", why.Error(), e.Candidates, e.Loaded, e.InRing)
	if e.Excluded > 0 {
		s += fmt.Sprintf("; %d have been tried", e.Excluded)
	}
	if e.Unable > 0 {
		s += fmt.Sprintf("; %d can't go on with a begun answer", e.Unable)
	}
	if e.Full > 0 {
		s += fmt.Sprintf("; the KV caches of %d are full", e.Full)
	}
	return s
}

// Is makes errors.Is(err, ErrNoWorker) true, and errors.Is(err, ErrNoRoom) where workers are full.
func (e *NoWorkerError) Is(target error) bool {
	return target == ErrNoWorker || target == ErrNoRoom && e.Full > 0
}
