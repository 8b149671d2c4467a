package agent

import (
	"sync"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// state is how the worker is. Everybody who reports reads it here.
type state struct {
	mu      sync.Mutex // guards the rest; nothing is called with it held
	id      grpcserver.Identity
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
func (s *state) Identity() grpcserver.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// renew makes this another instance: the engine is another process.
func (s *state) renew() error {
	instance, err := newInstance()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id.Instance = instance
	return nil
}

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

// loading reports where the load stands; a nil percent is unknown.
func (s *state) loading(message string, percent *int) {
	s.move(workerv1.Stage_STAGE_LOADING, message, percent)
}

// fetching reports where the fetch stands.
func (s *state) fetching(message string, percent *int) {
	s.move(workerv1.Stage_STAGE_FETCHING, message, percent)
}

func (s *state) move(stage workerv1.Stage, message string, percent *int) {
	var p *uint32
	if percent != nil {
		v := uint32(min(max(*percent, 0), 100))
		p = &v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Stage != stage {
		s.announce() // a percentage alone is no reason for a report of its own
	}
	s.status.Stage, s.status.Percent, s.status.Engine = stage, p, nil
	s.status.Reason, s.status.Message = "", message
}

// lost reports that the engine does not serve for now.
func (s *state) lost(reason, message string) {
	s.set(func(st *grpcserver.Status) {
		st.Stage, st.Percent, st.Engine = workerv1.Stage_STAGE_LOADING, nil, nil
		st.Reason, st.Message = reason, message
	})
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

// metrics is how things stand, for those who read metrics.
func (s *state) metrics() metrics.Now {
	now, _ := s.Status()
	out := metrics.Now{Loaded: now.Engine != nil, Stage: stages[now.Stage]}
	if now.Draining {
		out.Stage = stages[workerv1.Stage_STAGE_DRAINING]
	}
	if now.Percent != nil {
		part := float64(*now.Percent) / 100
		out.Progress = &part
	}
	if now.Engine != nil {
		out.Stats = now.Engine.Stats()
	}
	return out
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
