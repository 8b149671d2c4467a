package cache

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Times of references.
const (
	renew = time.Minute
	// lease is how long a reference outlives its last renewal: the time for the next container of a pod to start.
	lease = 5 * time.Minute
)

// reference is the record of one process: the blobs that it uses.
type reference struct {
	Boot    string   `json:"boot"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Renewed int64    `json:"renewed"` // seconds since 1970, by the owner's clock
	Blobs   []string `json:"blobs"`
}

// owner keeps this process's reference: a locked file, renewed each minute.
type owner struct {
	c    *Cache
	f    *os.File
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex // guards the rest and the file's content
	blobs  []string
	closed bool
}

func (c *Cache) newOwner() (*owner, error) {
	id, err := randomID()
	if err != nil {
		return nil, err
	}
	o := &owner{c: c, stop: make(chan struct{}), done: make(chan struct{})}
	err = c.exclusive(func() error { // those who read references lock them for a moment
		if o.f, err = c.flock(c.path(refs, id)); err != nil {
			return err
		}
		if o.f == nil {
			return fmt.Errorf("cache: the id %s is taken", id)
		}
		return o.write()
	})
	if err != nil {
		if o.f != nil {
			o.f.Close()
		}
		return nil, err
	}
	go o.renew()
	return o, nil
}

func (o *owner) renew() {
	defer close(o.done)
	t := o.c.o.Clock.NewTicker(renew)
	defer t.Stop()
	for {
		select {
		case <-t.C():
			o.mu.Lock()
			_ = o.write() // the lock on the file still speaks for us on this node
			o.mu.Unlock()
		case <-o.stop:
			return
		}
	}
}

// use adds blobs to the record. Called under exclusive, so nobody reads half of it.
func (o *owner) use(sums []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range sums {
		if !slices.Contains(o.blobs, s) {
			o.blobs = append(o.blobs, s)
		}
	}
	return o.write()
}

// write writes the record. o.mu is held, or nobody else knows o.
func (o *owner) write() error {
	b, err := json.Marshal(reference{Boot: o.c.o.Boot, Host: o.c.host, PID: os.Getpid(), Renewed: o.c.o.Clock.Now().Unix(), Blobs: o.blobs})
	if err != nil {
		return fmt.Errorf("cache: write a reference: %w", err)
	}
	if _, err := o.f.WriteAt(b, 0); err != nil {
		return o.c.fault("write the reference", o.f.Name(), err)
	}
	if err := o.f.Truncate(int64(len(b))); err != nil {
		return o.c.fault("write the reference", o.f.Name(), err)
	}
	return nil
}

// close removes the record.
func (o *owner) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	close(o.stop)
	err := os.Remove(o.f.Name())
	o.mu.Unlock()
	<-o.done
	o.mu.Lock()
	if errClose := o.f.Close(); err == nil {
		err = errClose
	}
	if err != nil {
		return o.c.fault("remove the reference", o.f.Name(), err)
	}
	return nil
}

// inUse returns the blobs that anybody uses, and how many processes do. It removes references that have ended. Called under
// exclusive.
func (c *Cache) inUse() (used map[string]bool, owners int, err error) {
	entries, err := os.ReadDir(c.path(refs))
	if err != nil {
		return nil, 0, c.fault("read", c.path(refs), err)
	}
	used = map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(c.path(refs), e.Name())
		r, live := c.reference(path)
		if !live {
			_ = os.Remove(path)
			continue
		}
		for _, b := range r.Blobs {
			used[b] = true
		}
		if len(r.Blobs) > 0 {
			owners++
		}
	}
	return used, owners, nil
}

// reference reads a record; live says whether it holds: its file is locked, or it was renewed lately. A record that can't
// be read holds while its file is young, because it may just be written.
func (c *Cache) reference(path string) (r reference, live bool) {
	f, err := os.Open(path)
	if err != nil {
		return r, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return r, false
	}
	renewed := info.ModTime()
	if err := json.NewDecoder(f).Decode(&r); err == nil {
		renewed = time.Unix(r.Renewed, 0)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return r, true
	}
	return r, c.o.Clock.Since(renewed) < lease
}
