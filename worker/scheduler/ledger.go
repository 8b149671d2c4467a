package scheduler

import (
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

const (
	// leastFollowed and mostFollowed bound how many prompts are followed beyond those that are inside: one for each block of
	// the cache, between these. Each takes some 250 bytes.
	leastFollowed, mostFollowed = 1024, 65536
	// mostGone is how many of the last prompts of which nothing is left can still be told of.
	mostGone = 4096
	// mostBytes bounds the length of a prompt that is believed.
	mostBytes = 1 << 40
)

// ledger is what there is to tell of the prompts that came with a name: that they came, and how much of them has gone from the
// cache since. Of each only the latest counts. Everything told has a number, which goes up. A prompt with a request inside is
// whole by its word, as it will be computed, and again when a run gives way.
type ledger struct {
	cache   *kvcache.Cache
	most    int // followed prompts
	all     map[uint64]*prompt
	ends    prompt              // the ring of all, by number; next is the oldest
	gone    []engine.PromptNews // at most last, around
	last    int
	oldest  int    // of gone, once that is full
	number  uint64 // of the latest
	missing uint64 // what has this number or a smaller one may not be told any more
}

// prompt is one that is followed.
type prompt struct {
	mark   kvcache.Mark
	news   engine.PromptNews // as it is told now
	bytes  uint64
	tokens int
	key    string // of its adapter
	inside int    // requests

	prev, next *prompt
}

func newLedger(c *kvcache.Cache, blocks, inside int) *ledger {
	l := &ledger{cache: c, most: min(max(blocks, leastFollowed), mostFollowed) + inside, last: mostGone, all: map[uint64]*prompt{}}
	l.ends.prev, l.ends.next = &l.ends, &l.ends
	return l
}

// accept takes in a request for a prompt of so many tokens. It returns nil for one that is shorter than a block.
func (l *ledger) accept(name engine.PromptName, tokens int, key string) *prompt {
	if tokens < kvcache.BlockTokens {
		return nil
	}
	p := l.all[name.Hash]
	if p == nil {
		l.room()
		p = &prompt{}
		p.mark.Of = p
		l.all[name.Hash] = p
	} else {
		p.unlink()
	}
	p.bytes, p.tokens, p.key = min(max(name.Bytes, uint64(name.Blocks)*engine.PromptBlockBytes), mostBytes), tokens, key
	p.inside++
	p.news.Hash, p.news.Blocks, p.news.Held = name.Hash, name.Blocks, name.Blocks
	l.tell(p)
	return p
}

// room stops following the prompt of which there was nothing to tell for the longest time, where there are too many. From
// then on nobody says what becomes of it.
func (l *ledger) room() {
	if len(l.all) < l.most {
		return
	}
	for p := l.ends.next; p != &l.ends; p = p.next {
		if p.inside == 0 {
			l.drop(p)
			l.number++
			l.missing = l.number
			return
		}
	}
}

// follow sets the prompt's mark to what a table holds of it, which is about to be closed.
func (l *ledger) follow(p *prompt, t *kvcache.Table, tokens int) {
	l.listen()
	l.cache.Follow(&p.mark, t, tokens)
}

// leave takes out a request that accept has taken in.
func (l *ledger) leave(p *prompt) {
	l.listen()
	p.inside--
	l.judge(p)
}

// void forgets what adapters have computed that nobody can ask for any more.
func (l *ledger) void(key string) {
	l.listen()
	for _, p := range l.all {
		if p.key == key {
			l.cache.Unfollow(&p.mark)
			l.judge(p)
		}
	}
}

// listen hears what has gone from the cache.
func (l *ledger) listen() {
	l.cache.Fallen(func(m *kvcache.Mark) { l.judge(m.Of.(*prompt)) })
}

// judge tells of a prompt if less of it is there than was told.
func (l *ledger) judge(p *prompt) {
	held := p.held(p.mark.Tokens())
	if p.inside > 0 || held >= p.news.Held {
		return
	}
	p.unlink()
	p.news.Held = held
	l.tell(p)
	if held > 0 {
		return
	}
	l.drop(p)
	if len(l.gone) < l.last {
		l.gone = append(l.gone, p.news)
		return
	}
	l.missing = max(l.missing, l.gone[l.oldest].Number)
	l.gone[l.oldest] = p.news
	l.oldest = (l.oldest + 1) % l.last
}

// held is how many of its own blocks so many tokens are, rounded down; all where each block of the cache is there that the
// prompt fills.
func (p *prompt) held(tokens int) uint32 {
	if tokens >= p.tokens/kvcache.BlockTokens*kvcache.BlockTokens {
		return p.news.Blocks
	}
	return min(p.news.Blocks, uint32(uint64(tokens)*p.bytes/uint64(p.tokens)/engine.PromptBlockBytes))
}

// tell gives p, which is in no ring, the next number.
func (l *ledger) tell(p *prompt) {
	l.number++
	p.news.Number = l.number
	p.prev, p.next = l.ends.prev, &l.ends
	p.prev.next, p.next.prev = p, p
}

func (l *ledger) drop(p *prompt) {
	p.unlink()
	l.cache.Unfollow(&p.mark)
	delete(l.all, p.news.Hash)
}

func (p *prompt) unlink() { p.prev.next, p.next.prev = p.next, p.prev }

// since returns what has a number of from or greater, at most so much, in order; the number to go on from; and whether nothing
// is missing that a caller who has all before from does not know. 0 is where a new caller begins.
func (l *ledger) since(from uint64, most int) (news []engine.PromptNews, next uint64, whole bool) {
	l.listen()
	p := l.ends.prev
	g := len(l.gone)
	gone := func(i int) *engine.PromptNews { return &l.gone[(l.oldest+i)%len(l.gone)] }
	for g > 0 && gone(g-1).Number >= from {
		g--
	}
	for p != &l.ends && p.news.Number >= from {
		p = p.prev
	}
	next = l.number + 1
	for p = p.next; p != &l.ends || g < len(l.gone); {
		if len(news) == most {
			next = news[most-1].Number + 1
			break
		}
		if p == &l.ends || g < len(l.gone) && gone(g).Number < p.news.Number {
			news = append(news, *gone(g))
			g++
			continue
		}
		news = append(news, p.news)
		p = p.next
	}
	return slices.Clip(news), next, l.missing == 0 || from > l.missing
}

// Prompts is engine.Follower's.
func (s *scheduler) Prompts(from uint64, most int) (news []engine.PromptNews, next uint64, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.ledger.since(from, most)
}

// PromptNumber is engine.Numbered's.
func (o *output) PromptNumber() uint64 { return o.number }
