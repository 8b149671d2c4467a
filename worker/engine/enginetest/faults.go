package enginetest

import (
	"errors"
	"io"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// unread: a request whose output is left unread ends by its reader's fault, what it has made can be read, and the engine
// serves on.
func (r *rig) unread() {
	if !r.e.Info().Caps.Logprobs {
		r.no("not claimed: without log probabilities there is too little to leave unread")
		return
	}
	s, err := r.e.Generate(r.within(), r.request(r.text(), r.e.Info().ContextTokens/5, func(q *engine.Request) {
		q.Choices, q.Logprobs, q.TopLogprobs, q.IgnoreEOS = 4, true, 20, true
	}))
	if err != nil {
		if r.offered(err, "ignore_eos") {
			r.Fatal(err)
		}
		return
	}
	defer s.Close() //nolint:errcheck // it has ended
	r.eventually("a request that nobody reads has left", func() bool { return len(r.e.Stats().RequestIDs) == 0 })
	if _, err := s.Next(); err != nil {
		r.Errorf("what was made can't be read: %v", err)
	}
	switch err := r.last(s); {
	case errors.Is(err, io.EOF):
		r.no("its context is too short")
	case !errors.Is(err, engine.ErrSlowReader):
		r.Errorf("it ended with %v", err)
	}
	if err := r.e.Health(r.within()); err != nil {
		r.Errorf("the engine says %v", err)
	}
	r.quiet()
	r.answer(r.request(r.chat(), 4))
}

// loses: an engine that has lost its model takes no request, and says so by an error that means that nothing was done.
func (r *rig) loses() {
	if r.h.Lose == nil {
		r.no("not tried")
		return
	}
	r.answer(r.request(r.chat(), 4))
	r.h.Lose(r.T, r.e)
	r.eventually("requests are refused as of a model that is not loaded", func() bool {
		s, err := r.e.Generate(r.within(), r.request(r.chat(), 1))
		if err == nil {
			_ = drain(s) // the request that finds the loss may fail
		}
		return errors.Is(err, engine.ErrNotLoaded)
	})
	r.eventually("it says that it can't serve", func() bool { return r.e.Health(r.within()) != nil })
}
