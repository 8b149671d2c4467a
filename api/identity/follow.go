package identity

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Reread is how often a Follower reads. The kubelet needs about a minute to bring a changed Secret.
const Reread = 20 * time.Second

// Follower reads a folder again and again, so that what is renewed in it is used without a restart. It keeps nothing: who reads
// stays with the last good content where what is there now can't be used.
type Follower struct {
	once sync.Once
	stop chan struct{}
	done chan struct{} // closed when nobody reads any more
}

// Follow calls read at every Reread from now on, until Close. unfit is told why read has failed, each reason once until read
// succeeds or fails for another.
func Follow(c clock.WithTicker, read func() error, unfit func(why string)) *Follower {
	f := &Follower{stop: make(chan struct{}), done: make(chan struct{})}
	go f.run(c.NewTicker(Reread), read, unfit)
	return f
}

func (f *Follower) run(tick clock.Ticker, read func() error, unfit func(string)) {
	defer close(f.done)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-f.stop:
			return
		case <-tick.C():
		}
		switch err := read(); {
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			unfit(last)
		}
	}
}

// Close ends the reading.
func (f *Follower) Close() {
	f.once.Do(func() { close(f.stop) })
	<-f.done
}
