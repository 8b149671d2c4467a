// Package progress says again and again that something still runs, so that nobody takes a long step for a dead one. It
// decides nothing about the step.
package progress

import "time"

// every is the time between two lines.
const every = 10 * time.Second

// Tell calls say with the time that has passed, every ten seconds, until the returned function is called. say is not
// called after that.
func Tell(say func(passed time.Duration)) (stop func()) {
	start := time.Now()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				say(time.Since(start))
			}
		}
	}()
	return func() { close(done); <-ended }
}
