package agent

import (
	"sync"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
)

// state is how the worker is. Everybody who reports reads it here.
type state struct {
	id grpcserver.Identity

	mu      sync.Mutex // guards the rest; nothing is called with it held
	status  grpcserver.Status
	changed chan struct{} // closed and replaced by every change
}

func newState(id grpcserver.Identity) *state {
	return &state{
		id:      id,
		status:  grpcserver.Status{Stage: workerv1.Stage_STAGE_LOADING, Message: "looking for the weights"},
		changed: make(chan struct{}),
	}
}

// Identity says who this worker is.
func (s *state) Identity() grpcserver.Identity { return s.id }

// Status returns how the worker is, and a channel that is closed when that is no longer so.
func (s *state) Status() (grpcserver.Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed
}

// Drain makes the worker report draining.
func (s *state) Drain() {
	s.set(func(st *grpcserver.Status) { st.Draining = true })
}

// loading reports where the load stands.
func (s *state) loading(message string, percent int) {
	p := uint32(min(max(percent, 0), 100))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Stage != workerv1.Stage_STAGE_LOADING {
		s.announce() // a percentage alone is no reason for a report of its own
	}
	s.status.Stage, s.status.Percent = workerv1.Stage_STAGE_LOADING, &p
	s.status.Reason, s.status.Message = "", message
}

// loaded reports that requests are served.
func (s *state) loaded(e engine.Engine) {
	s.set(func(st *grpcserver.Status) {
		st.Stage, st.Percent, st.Engine = workerv1.Stage_STAGE_LOADED, nil, e
		st.Reason, st.Message = "", ""
	})
}

// failed reports why no requests are served.
func (s *state) failed(reason, message string) {
	s.set(func(st *grpcserver.Status) {
		st.Stage, st.Percent, st.Engine = workerv1.Stage_STAGE_FAILED, nil, nil
		st.Reason, st.Message = reason, message
	})
}

// stats reads the engine's figures; ok is false while there is none.
func (s *state) stats() (engine.Stats, bool) {
	now, _ := s.Status()
	if now.Engine == nil {
		return engine.Stats{}, false
	}
	return now.Engine.Stats(), true
}

func (s *state) set(change func(*grpcserver.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	s.announce()
}

// announce wakes those who wait for a change. s.mu is held.
func (s *state) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
