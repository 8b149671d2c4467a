package cache

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is written to a file's journal, and when.
const (
	saveEvery  = time.Second
	savePieces = 16 // 64 MiB, which is the most that a kill costs besides pieces on their way
)

// Span is the bytes [From, To) of a file.
type Span struct{ From, To int64 }

// Bytes is how long s is.
func (s Span) Bytes() int64 { return s.To - s.From }

// journal is what is there of a file on its way. It is written after the bytes, but a machine that crashes may keep the
// one and lose the other: only the digest of the whole file proves it.
type journal struct {
	Bytes   int64  `json:"bytes"`
	Version string `json:"version"`
	Piece   int64  `json:"piece"`
	Have    []byte `json:"have"` // one bit a piece
}

// Partial is a file on its way. The one who has its Lock uses it, from any number of goroutines.
type Partial struct {
	c       *Cache
	key     string
	f       *os.File
	bytes   int64
	version string
	resumed bool

	mu       sync.Mutex // guards the rest
	have     []byte
	there    int64 // bytes of the pieces that are there
	frontier int64 // bytes from the start without a gap
	changed  chan struct{}
	saved    time.Time
	unsaved  int
	over     bool // discarded or committed: no journal any more
}

// Partial opens the file of key on its way, to be of so many bytes and of a version. What is there of it is kept if it was of
// the same size and version, and a version is known. Otherwise the file is made anew, with its room reserved on the disk. The
// error is an *UnwritableError or a *NoSpaceError.
func (c *Cache) Partial(key string, bytes int64, version string) (*Partial, error) {
	p := &Partial{c: c, key: key, bytes: bytes, version: version, changed: make(chan struct{}), saved: c.o.Clock.Now()}
	p.have = make([]byte, (p.pieces()+7)/8)
	if p.resume() {
		return p, nil
	}
	c.Discard(key)
	f, err := os.OpenFile(p.path(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, c.fault("make", p.path(), err)
	}
	if err := c.o.Reserve(f, bytes); err != nil {
		f.Close()
		c.Discard(key)
		return nil, c.fault("reserve "+Size(bytes)+" for", p.path(), err)
	}
	p.f = f
	return p, nil
}

// reserve gives f its size, with blocks for it where the file system can, so that nobody else takes them meanwhile.
func reserve(f *os.File, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(bytes)
		}
		return err
	}
}

// resume takes over what an earlier process left.
func (p *Partial) resume() bool {
	b, err := os.ReadFile(p.path() + ".json")
	var j journal
	if err != nil || p.version == "" || json.Unmarshal(b, &j) != nil || j.Bytes != p.bytes || j.Version != p.version ||
		j.Piece != p.c.o.PieceBytes || len(j.Have) != len(p.have) {
		return false
	}
	f, err := os.OpenFile(p.path(), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	if info, err := f.Stat(); err != nil || info.Size() != p.bytes {
		f.Close()
		return false
	}
	p.f, p.have = f, j.Have
	for i := range p.pieces() {
		if p.has(i) {
			p.there += p.piece(i).Bytes()
		}
	}
	p.resumed = p.there > 0
	p.advance()
	return true
}

// Resumed reports whether some of the file was there from an earlier process.
func (p *Partial) Resumed() bool { return p.resumed }

// There is how many bytes of the file are there.
func (p *Partial) There() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there
}

// Missing returns what is not there, in order, in spans of at most some pieces.
func (p *Partial) Missing(pieces int64) []Span {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Span
	for i := range p.pieces() {
		if p.has(i) {
			continue
		}
		s := p.piece(i)
		if n := len(out); n > 0 && out[n-1].To == s.From && s.To-out[n-1].From <= pieces*p.c.o.PieceBytes {
			out[n-1].To = s.To
		} else {
			out = append(out, s)
		}
	}
	return out
}

// WriteAt writes bytes of the file. The error is an *UnwritableError or a *NoSpaceError.
func (p *Partial) WriteAt(b []byte, at int64) (int, error) {
	n, err := p.f.WriteAt(b, at)
	if err != nil {
		return n, p.c.fault("write", p.path(), err)
	}
	return n, nil
}

// ReadAt reads bytes that were written. The error is an *UnwritableError.
func (p *Partial) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.f.ReadAt(b, at)
	if err != nil {
		return n, p.c.fault("read", p.path(), err)
	}
	return n, nil
}

// Wrote says that all of s is written. s.From is where a piece begins; pieces that s covers count.
func (p *Partial) Wrote(s Span) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := s.From / p.c.o.PieceBytes; i < p.pieces() && p.piece(i).To <= s.To; i++ {
		if p.has(i) {
			continue
		}
		p.have[i/8] |= 1 << (i % 8)
		p.there += p.piece(i).Bytes()
		p.unsaved++
	}
	p.advance()
	if now := p.c.o.Clock.Now(); p.unsaved >= savePieces || p.unsaved > 0 && now.Sub(p.saved) >= saveEvery {
		p.saved = now
		return p.save()
	}
	return nil
}

// Frontier returns how many bytes from the start are there without a gap, and a channel that is closed when that changes.
func (p *Partial) Frontier() (int64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frontier, p.changed
}

// advance moves the frontier. p.mu is held, or nobody else knows p.
func (p *Partial) advance() {
	before := p.frontier
	for i := p.frontier / p.c.o.PieceBytes; i < p.pieces() && p.has(i); i++ {
		p.frontier = p.piece(i).To
	}
	if p.frontier != before {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// save writes the journal. p.mu is held.
func (p *Partial) save() error {
	p.unsaved = 0
	b, err := json.Marshal(journal{Bytes: p.bytes, Version: p.version, Piece: p.c.o.PieceBytes, Have: p.have})
	if err != nil {
		return err
	}
	return p.c.replace(p.path()+".json", b)
}

// Close keeps what is there for the next try. It may follow a Commit that failed.
func (p *Partial) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := error(nil)
	if p.unsaved > 0 && !p.over {
		err = p.save()
	}
	if errClose := p.f.Close(); !errors.Is(errClose, os.ErrClosed) {
		err = errors.Join(err, errClose)
	}
	return err
}

// Discard removes the file. Close follows.
func (p *Partial) Discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.c.Discard(p.key)
}

// Discard removes what is there of the file of key. The one who has its Lock does so.
func (c *Cache) Discard(key string) {
	_ = os.Remove(c.path(partials, key+".json"))
	_ = os.Remove(c.path(partials, key))
}

// There returns how many bytes the disk has given to the file of key so far.
func (c *Cache) There(key string) int64 {
	info, err := os.Stat(c.path(partials, key))
	if err != nil {
		return 0
	}
	return allocated(info)
}

// commit makes the file a blob. The one who has its Lock does so, under exclusive. After an error the file is resumed from
// its last journal.
func (p *Partial) commit(blob string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if err := errors.Join(p.f.Sync(), p.f.Chmod(0o444), p.f.Close()); err != nil {
		return p.c.fault("finish", p.path(), err)
	}
	if err := os.Rename(p.path(), blob); err != nil {
		if info, errStat := os.Stat(blob); errors.Is(err, fs.ErrNotExist) && errStat == nil && info.Size() == p.bytes {
			return nil // a second holder of the lock was faster
		}
		return p.c.fault("finish", p.path(), err)
	}
	_ = os.Remove(p.path() + ".json")
	return syncDir(p.c, p.c.path(blobs))
}

func syncDir(c *Cache, dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return c.fault("open", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems can't
		return c.fault("write", dir, err)
	}
	return nil
}

func (p *Partial) path() string { return p.c.path(partials, p.key) }

func (p *Partial) pieces() int64 { return (p.bytes + p.c.o.PieceBytes - 1) / p.c.o.PieceBytes }

func (p *Partial) piece(i int64) Span {
	return Span{i * p.c.o.PieceBytes, min((i+1)*p.c.o.PieceBytes, p.bytes)}
}

func (p *Partial) has(i int64) bool { return p.have[i/8]&(1<<(i%8)) != 0 }
