package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Times of locks.
const (
	poll  = 500 * time.Millisecond // between two tries of one who waits
	beat  = time.Second            // between two signs of life of a holder
	stale = 30 * time.Second       // without a sign of life, seen by one who waits
)

// Holder is who has a lock, and how far it has come.
type Holder struct {
	Boot string `json:"boot"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Beat counts up while the holder lives.
	Beat uint64 `json:"beat"`
	// Done of Total bytes are there.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// Lock is the right to fetch one file.
//
// It is flock, which the kernel takes from a process that is killed, so on one node a dead holder's lock is free at once.
// Some shared file systems know flock only within a node. There a holder's signs of life in the file itself keep others
// away, and a holder that has stopped giving them for 30 seconds is taken for dead. Should two hold a lock all the same,
// both write equal bytes to equal places, and what they made is compared with its digest: they waste, and harm nothing.
type Lock struct {
	f           *os.File
	done, total atomic.Int64
	stop        chan struct{}
	beating     sync.WaitGroup
}

// watch is what one who waits remembers of the holder.
type watch struct {
	record []byte
	since  time.Time
}

// Lock waits until this process may fetch the file of key. waiting is called at each try with who has the lock. The error is
// an *UnwritableError, a *NoSpaceError or ctx's.
func (c *Cache) Lock(ctx context.Context, key string, waiting func(Holder)) (*Lock, error) {
	var w watch
	for {
		l, holder, err := c.try(key, &w)
		if err != nil || l != nil {
			return l, err
		}
		if waiting != nil {
			waiting(holder)
		}
		if !c.wait(ctx.Done(), poll) {
			return nil, ctx.Err()
		}
	}
}

// try takes the lock if it is free.
func (c *Cache) try(key string, w *watch) (*Lock, Holder, error) {
	f, err := c.flock(c.path(locks, key))
	if err != nil {
		return nil, Holder{}, err
	}
	if f == nil { // a living process of this node has it
		record, err := os.ReadFile(c.path(locks, key))
		if err != nil {
			record = nil // who waits learns no progress, and tries again
		}
		return nil, holderOf(record), nil
	}
	record, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		f.Close()
		return nil, Holder{}, c.fault("read the lock", f.Name(), err)
	}
	if holder := holderOf(record); len(record) > 0 && holder.Boot != c.o.Boot && !w.dead(record, c.o.Clock.Now()) {
		f.Close()
		return nil, holder, nil
	}
	l := &Lock{f: f, stop: make(chan struct{})}
	l.beating.Go(func() { c.beat(l) })
	return l, Holder{}, nil
}

// dead reports whether the record of another node's process has not changed for so long that the process must be gone.
func (w *watch) dead(record []byte, now time.Time) bool {
	if w.record == nil || !bytes.Equal(w.record, record) {
		w.record, w.since = bytes.Clone(record), now
	}
	return now.Sub(w.since) >= stale
}

// flock opens path and locks it; nil without an error means that another has it.
func (c *Cache) flock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, c.fault("open the lock", path, err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, f.Close()
		case errors.Is(err, unix.EINTR):
			f.Close()
			continue
		case err != nil:
			f.Close()
			return nil, c.fault("lock", path, err)
		}
		// The file may have been cleaned up between the opening and the locking.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

// Progress says how far the holder has come, for those who wait.
func (l *Lock) Progress(done, total int64) {
	l.done.Store(done)
	l.total.Store(total)
}

// beat gives signs of life until Unlock.
func (c *Cache) beat(l *Lock) {
	t := c.o.Clock.NewTicker(beat)
	defer t.Stop()
	h := Holder{Boot: c.o.Boot, Host: c.host, PID: os.Getpid()}
	for {
		h.Beat++
		h.Done, h.Total = l.done.Load(), l.total.Load()
		b, err := json.Marshal(h)
		if err == nil {
			// Padded, so that a shorter record leaves no rest of a longer one. Failing, on a full disk say, it only makes
			// those on other nodes impatient.
			_, _ = l.f.WriteAt(append(b, strings.Repeat(" ", max(0, 255-len(b)))+"\n"...), 0)
		}
		select {
		case <-t.C():
		case <-l.stop:
			return
		}
	}
}

// Unlock lets the next one in.
func (l *Lock) Unlock() {
	close(l.stop)
	l.beating.Wait()
	_ = l.f.Truncate(0) // an empty record needs no waiting for its death
	_ = l.f.Close()
}

func holderOf(record []byte) (h Holder) {
	_ = json.Unmarshal(record, &h) // one that is being written is nobody's for the moment
	return h
}

// exclusive runs f while no other process changes what is in the cache. It is held for milliseconds.
func (c *Cache) exclusive(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := c.path(locks, "cache")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return c.fault("open the lock", path, err)
	}
	defer file.Close()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EINTR) {
			return c.fault("lock", path, err)
		}
	}
}
