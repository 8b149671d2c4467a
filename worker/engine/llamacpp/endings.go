package llamacpp

import (
	"hash/maphash"
	"sync"

	"github.com/ringfleet/ringfleet/worker/dialect"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// keptEndings is of how many chats it is known how their prompts end: more than are rendered between the rendering of one
// and the making of its splitters.
const keptEndings = 1024

// endings remembers how the model answers to the chats that were rendered last, so that the splitters of a request, one for
// each of its choices, need no prompt of their own. It is safe for use by several goroutines.
type endings struct {
	seed maphash.Seed

	mu    sync.Mutex // guards the rest
	known map[chatKey]dialect.Dialect
	last  [keptEndings]chatKey // a ring
	next  int
}

// chatKey is what a chat is known by. The seed is of this process alone, so no client can make two chats that are alike in it.
type chatKey struct{ messages, tools uint64 }

func newEndings() *endings {
	return &endings{seed: maphash.MakeSeed(), known: map[chatKey]dialect.Dialect{}}
}

func (e *endings) of(c *engine.Chat) chatKey {
	return chatKey{maphash.Bytes(e.seed, c.Messages), maphash.Bytes(e.seed, c.Tools)}
}

func (e *endings) put(c *engine.Chat, d dialect.Dialect) {
	key := e.of(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, found := e.known[key]; found {
		return
	}
	if len(e.known) == keptEndings {
		delete(e.known, e.last[e.next])
	}
	e.known[key], e.last[e.next] = d, key
	e.next = (e.next + 1) % keptEndings
}

func (e *endings) get(c *engine.Chat) (d dialect.Dialect, found bool) {
	key := e.of(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	d, found = e.known[key]
	return d, found
}
