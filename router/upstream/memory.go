package upstream

import "sync/atomic"

const (
	// maxKept is how many bytes of an answer are kept so that it can go on at another worker, 4 for a token. Longer ones don't.
	maxKept = 1 << 20
	// defaultKept is the bound for all answers together where none is given.
	defaultKept = 128 << 20
	// keptShare is what part of the memory that nobody has yet an answer may have: the fuller it is, the shorter are the
	// answers that are still kept. So the longest make room, and there is some for those that begin.
	keptShare = 64
)

// memory is what is kept of all answers. Its methods may be called from any goroutine.
type memory struct {
	most int64
	used atomic.Int64
}

// take takes bytes for an answer that has size with them, and reports whether there is room.
func (m *memory) take(bytes, size int64) bool {
	if used := m.used.Add(bytes); size <= (m.most-used)/keptShare {
		return true
	}
	m.used.Add(-bytes)
	return false
}

func (m *memory) give(bytes int64) { m.used.Add(-bytes) }
