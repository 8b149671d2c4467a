package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// counted is a vocabulary whose work begins when the test lets it.
type counted struct {
	engine.Vocabulary
	begun     chan struct{} // gets a token from each that begins
	may       chan struct{} // closed when they may go on
	now, most atomic.Int32
}

func (c *counted) Tokenize(text string, special bool) ([]engine.Token, error) {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	c.begun <- struct{}{}
	<-c.may
	return c.Vocabulary.Tokenize(text, special)
}

func TestFewPromptsAreTokenisedTogetherAndTheOthersWaitAsLongAsTheirCallers(t *testing.T) {
	const calls = 8
	device := small("x")
	device.Clock = clock.RealClock{}
	loaded := sim.New(device)
	v := &counted{Vocabulary: loaded.Vocabulary, begun: make(chan struct{}, calls), may: make(chan struct{})}
	loaded.Vocabulary = v
	e, err := New(loaded, Options{MaxSequences: 4, MaxWaiting: 64, StepTokens: 32, Clock: clock.RealClock{}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			if tokens, err := e.Tokenize(context.Background(), engine.Prompt{Text: "some text"}); err != nil || len(tokens) == 0 {
				t.Errorf("%d tokens, %v", len(tokens), err)
			}
		})
	}
	for range desks {
		<-v.begun
	}

	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting := make(chan error, 2)
	group.Go(func() {
		_, err := e.Tokenize(ctx, engine.Prompt{Text: "never"})
		waiting <- err
	})
	group.Go(func() {
		_, err := e.Generate(ctx, ask("never", 1))
		waiting <- err
	})
	if tokens, err := e.Tokenize(ctx, engine.Prompt{Tokens: []engine.Token{1}}); err != nil || len(tokens) != 1 {
		t.Errorf("tokens that need no work waited: %v", err)
	}
	cancel(gone)
	for range 2 {
		if err := <-waiting; !errors.Is(err, gone) {
			t.Errorf("a caller that went away got %v", err)
		}
	}
	close(v.may)
	group.Wait()
	if most := v.most.Load(); most != desks {
		t.Errorf("%d at once, want %d", most, desks)
	}
}
