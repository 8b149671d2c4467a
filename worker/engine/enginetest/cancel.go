package enginetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// many is more tokens than a test waits for, and so few that as many requests as run together have room.
func (r *rig) many() int { return r.e.Info().ContextTokens / 8 }

// begin starts a request that goes on for long and waits for its first token.
func (r *rig) begin(ctx context.Context) engine.Stream {
	r.Helper()
	s, err := r.e.Generate(ctx, r.request(r.text(), r.many()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = s.Close() })
	if _, err := s.Next(); err != nil {
		r.Fatalf("the first token: %v", err)
	}
	return s
}

// last reads a stream that should end with an error and returns it.
func (r *rig) last(s engine.Stream) error {
	r.Helper()
	for range 1 << 20 {
		if _, err := s.Next(); err != nil {
			return err
		}
	}
	r.Fatal("the stream goes on for ever")
	return nil
}

// cancelsDecode: a running request ends when its context does, with the context's cause, and when its stream is closed;
// its place and its blocks are free then.
func (r *rig) cancelsDecode() {
	gone := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(r.within())
	s := r.begin(ctx)
	cancel(gone)
	if err := r.last(s); !errors.Is(err, gone) {
		r.Errorf("after its context ended the stream ended with %v", err)
	}
	r.quiet()

	s = r.begin(r.within())
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		r.Errorf("closing twice: %v", err)
	}
	if err := r.last(s); !errors.Is(err, engine.ErrClosed) {
		r.Errorf("after Close the stream ended with %v", err)
	}
	r.quiet()
	r.answer(r.request(r.chat(), 8))
}

// cancelsPrompt: a request whose prompt is being computed ends, and the next one is served.
func (r *rig) cancelsPrompt() {
	ctx, cancel := context.WithCancel(r.within())
	defer cancel()
	ended := make(chan error, 1)
	prompt := r.long(r.e.Info().ContextTokens / 2)
	go func() {
		s, err := r.e.Generate(ctx, r.request(prompt, 8))
		if err == nil {
			err = drain(s)
		}
		ended <- err
	}()
	r.eventually("the request is inside", func() bool { return len(r.e.Stats().RequestIDs) > 0 || len(ended) > 0 })
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		r.Errorf("it ended with %v", err)
	}
	r.quiet()
	r.answer(r.request(r.chat(), 8))
}

// drain reads a stream to its end.
func drain(s engine.Stream) error {
	defer s.Close() //nolint:errcheck // it has ended
	for {
		if _, err := s.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// cancelsQueued: a request that waits for a place leaves the queue, and those that run go on undisturbed.
func (r *rig) cancelsQueued() {
	sequences := r.h.Sequences
	if sequences == 0 {
		sequences = r.e.Info().Caps.MaxSeqs
	}
	all, stop := context.WithCancel(r.within())
	var streams []engine.Stream
	for range sequences {
		streams = append(streams, r.begin(all))
	}
	ctx, cancel := context.WithCancel(r.within())
	ended := make(chan error, 1)
	q := r.request(r.text(), 8)
	go func() {
		s, err := r.e.Generate(ctx, q)
		if err == nil {
			err = drain(s)
		}
		ended <- err
	}()
	r.eventually("one more request is inside", func() bool { return slices.Contains(r.e.Stats().RequestIDs, q.ID) })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		r.Errorf("the queued request ended with %v", err)
	}
	var reading sync.WaitGroup
	for i, s := range streams {
		reading.Go(func() {
			for range 4 {
				if _, err := s.Next(); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					r.Errorf("running request %d was disturbed: %v", i, err)
					return
				}
			}
		})
	}
	reading.Wait()
	stop()
	for _, s := range streams {
		_ = r.last(s)
	}
	r.quiet()
	r.answer(r.request(r.chat(), 8))
}
