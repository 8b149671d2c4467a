package placement

import (
	"errors"
	"fmt"
)

// ErrNoWorker is what errors.Is finds in a *NoWorkerError.
var ErrNoWorker = errors.New("no worker can take the request")

// NoWorkerError says that nobody can take a request, and what there is instead.
type NoWorkerError struct {
	Candidates int // pods of the model
	Loaded     int // of them, those that have loaded it
	InRing     int // of them, those that may take requests
	Excluded   int // of them, those that have been tried for this request
}

// Error names the counts.
func (e *NoWorkerError) Error() string {
	s := fmt.Sprintf("%s: of %d workers %d have loaded the model and %d are in the ring",
		ErrNoWorker.Error(), e.Candidates, e.Loaded, e.InRing)
	if e.Excluded > 0 {
		s += fmt.Sprintf("; %d have been tried", e.Excluded)
	}
	return s
}

// Is makes errors.Is(err, ErrNoWorker) true.
func (e *NoWorkerError) Is(target error) bool { return target == ErrNoWorker }
