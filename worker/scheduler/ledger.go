package scheduler

import (
	"slices"
	"sort"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

const (
	// mostGone is how many of the last prompts that are not followed any more can still be told of.
	mostGone = 4096
	// mostBytes bounds the length of a prompt that is believed.
	mostBytes = 1 << 40
)

// ledger is what there is to tell of the prompts that came with a name: that they came, what is there of them when the last
// request has left, and when it becomes less. Of each only the latest counts. Everything told has a number, which goes up. A
// prompt with a request inside is whole by its word, as it will be computed, and again when a run gives way.
//
// Of those without a request inside only one is followed at a block of the cache, where it ends or has fallen to: the others
// have become its heirs' charge. So there are never more than blocks, and each block that goes is told of by one.
type ledger struct {
	cache  *kvcache.Cache
	all    map[uint64]*prompt
	ends   prompt              // the ring of all, by number; next is the oldest
	gone   []engine.PromptNews // the last that are followed no more: at most last, around
	last   int
	oldest int    // of gone, once that is full
	number uint64 // of the latest
	missed uint64 // what has this number or a smaller one may not be told any more
}

// prompt is one that is followed.
type prompt struct {
	mark   kvcache.Mark
	news   engine.PromptNews // as it is told now
	bytes  int64             // as its caller counts
	front  int64             // of its text, that the caller does not know
	tokens int
	key    string // of its adapter
	inside int    // requests

	prev, next *prompt
}

func newLedger(c *kvcache.Cache) *ledger {
	l := &ledger{cache: c, last: mostGone, all: map[uint64]*prompt{}}
	l.ends.prev, l.ends.next = &l.ends, &l.ends
	return l
}

// accept takes in a request for a prompt of so many tokens, whose text has so many bytes. It returns nil for one that is shorter
// than a block.
func (l *ledger) accept(name engine.PromptName, tokens int, text int64, key string) *prompt {
	if tokens < kvcache.BlockTokens {
		return nil
	}
	l.listen()
	p := l.all[name.Hash]
	if p == nil {
		p = &prompt{}
		p.mark.Of = p
		l.all[name.Hash] = p
	} else {
		p.unlink()
	}
	if p.key != key {
		l.cache.Unfollow(&p.mark) // of what nobody can ask for any more
	}
	p.bytes, p.tokens, p.key = int64(min(max(name.Bytes, uint64(name.Blocks)*engine.PromptBlockBytes), mostBytes)), tokens, key
	p.front = max(0, text-p.bytes)
	p.inside++
	p.news = engine.PromptNews{Hash: name.Hash, Blocks: name.Blocks, Held: name.Blocks, Inside: true}
	l.tell(p)
	return p
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

// judge tells of a prompt that no request is inside for, if that is news, and sees that no other one is followed where it lies.
func (l *ledger) judge(p *prompt) {
	if p.inside > 0 {
		return
	}
	held := p.held()
	var heir *prompt
	if m := p.mark.Beside(func(m *kvcache.Mark) bool { return m.Of.(*prompt).inside == 0 }); m != nil && held > 0 {
		heir = m.Of.(*prompt)
		if held == p.news.Blocks && heir.news.Held < heir.news.Blocks {
			l.yield(heir, p) // others may know the name of one that ends here by their own prompts
			heir = nil
		}
	}
	switch {
	case heir != nil:
		p.news.Held = held
		l.yield(p, heir)
	case p.news.Inside || held < p.news.Held:
		p.unlink()
		p.news.Inside, p.news.Held = false, held
		l.tell(p)
		if held == 0 {
			l.drop(p)
		}
	}
}

// yield leaves what is there of p to another prompt.
func (l *ledger) yield(p, heir *prompt) {
	p.unlink()
	p.news.Inside, p.news.Heir = false, heir.news.Hash
	l.tell(p)
	l.drop(p)
}

// held is how many of its own blocks are there, rounded down; all where each block of the cache is there that the prompt fills.
// Text that its caller does not know is taken for the first.
func (p *prompt) held() uint32 {
	if !p.mark.Set() {
		return 0
	}
	if p.mark.Tokens() >= p.tokens/kvcache.BlockTokens*kvcache.BlockTokens {
		return p.news.Blocks
	}
	return uint32(min(int64(p.news.Blocks), max(0, p.mark.Bytes()-p.front)/engine.PromptBlockBytes))
}

// tell gives p, which is in no ring, the next number.
func (l *ledger) tell(p *prompt) {
	l.number++
	p.news.Number = l.number
	p.prev, p.next = l.ends.prev, &l.ends
	p.prev.next, p.next.prev = p, p
}

// drop follows p no more. What was told last of it can still be told.
func (l *ledger) drop(p *prompt) {
	p.unlink()
	l.cache.Unfollow(&p.mark)
	delete(l.all, p.news.Hash)
	if len(l.gone) < l.last {
		l.gone = append(l.gone, p.news)
		return
	}
	l.missed = max(l.missed, l.gone[l.oldest].Number)
	l.gone[l.oldest] = p.news
	l.oldest = (l.oldest + 1) % l.last
}

func (p *prompt) unlink() { p.prev.next, p.next.prev = p.next, p.prev }

// since returns what has a number of from or greater, at most so much, in order; the number to go on from; and up to which number
// something may be missing. 0 is where a new caller begins.
func (l *ledger) since(from uint64, most int) (news []engine.PromptNews, next, missed uint64) {
	l.listen()
	gone := func(i int) *engine.PromptNews { return &l.gone[(l.oldest+i)%len(l.gone)] }
	g := sort.Search(len(l.gone), func(i int) bool { return gone(i).Number >= from })
	next = l.number + 1
	for p := l.first(from); p != &l.ends || g < len(l.gone); {
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
	return slices.Clip(news), next, l.missed
}

// first returns the first prompt that has a number of from or greater, or the end. It looks from both ends.
func (l *ledger) first(from uint64) *prompt {
	old, young := l.ends.next, l.ends.prev
	for {
		switch {
		case old == &l.ends || old.news.Number >= from:
			return old
		case young.news.Number < from:
			return young.next
		}
		old, young = old.next, young.prev
	}
}

// Prompts is engine.Follower's.
func (s *scheduler) Prompts(from uint64, most int) (news []engine.PromptNews, next, missed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.ledger.since(from, most)
}

// PromptNumber is engine.Numbered's.
func (o *output) PromptNumber() uint64 { return o.number }
