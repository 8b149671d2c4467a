package scheduler

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// listener is one who hears all that a ledger has to tell: how much of which prompt it holds.
type listener struct {
	next uint64
	held map[uint64]uint32
}

func (h *listener) hear(t *rapid.T, l *ledger, most int) {
	news, next, whole := l.since(h.next, most)
	if !whole {
		h.held = map[uint64]uint32{}
	}
	last := h.next
	for _, n := range news {
		if n.Number < last || n.Number >= next {
			t.Fatalf("number %d is told between %d and %d", n.Number, last, next)
		}
		last = n.Number + 1
		if h.held[n.Hash] = n.Held; n.Held == 0 {
			delete(h.held, n.Hash)
		}
	}
	if len(news) > most {
		t.Fatalf("%d are told, not %d", len(news), most)
	}
	h.next = next
}

// sequences is how many requests a library has at once.
const sequences = 6

// library is a cache, a ledger and those who hear it.
type library struct {
	c    *kvcache.Cache
	l    *ledger
	hear []*listener
	open []*page
}

// page is a request.
type page struct {
	p      *prompt
	t      *kvcache.Table
	key    kvcache.Key
	tokens []kvcache.Token
}

func (b *library) begin(t *rapid.T) {
	first := rapid.Uint64Range(1, 12).Draw(t, "prompt")
	pg := &page{key: kvcache.Key{Salt: []string{"", "a"}[first%2]}}
	for k := range 16 * (1 + int(first)%5) {
		pg.tokens = append(pg.tokens, kvcache.Token(k/32)*kvcache.Token(first/4))
	}
	pg.tokens = append(pg.tokens, 99)
	table, err := b.c.Open(pg.key, pg.tokens)
	if err != nil {
		return
	}
	pg.t = table
	name := engine.PromptName{Hash: first, Blocks: uint32(len(pg.tokens) / 16), Bytes: uint64(4 * len(pg.tokens))}
	pg.p = b.l.accept(name, len(pg.tokens), pg.key.Adapter)
	b.open = append(b.open, pg)
}

func (b *library) end(t *rapid.T) {
	i := rapid.IntRange(0, len(b.open)-1).Draw(t, "request")
	pg := b.open[i]
	b.open = slices.Delete(b.open, i, i+1)
	n := rapid.IntRange(pg.t.Len(), len(pg.tokens)).Draw(t, "computed")
	if b.c.Grow(pg.t, n) == nil {
		b.c.Append(pg.t, pg.tokens[pg.t.Len():n])
	}
	b.l.follow(pg.p, pg.t, len(pg.tokens))
	b.c.Close(pg.t, rapid.Bool().Draw(t, "keep"))
	b.l.leave(pg.p)
}

// check compares what each has heard with what the ledger follows, and that with the cache.
func (b *library) check(t *rapid.T, most int) {
	for i, h := range b.hear {
		for h.next <= b.l.number {
			h.hear(t, b.l, 3)
		}
		for hash, held := range h.held {
			p := b.l.all[hash]
			if p != nil && p.news.Held != held {
				t.Fatalf("listener %d has heard %d blocks of prompt %d, not %d", i, held, hash, p.news.Held)
			}
			if p == nil && b.l.missing == 0 {
				t.Fatalf("listener %d thinks that %d blocks of prompt %d are there, which is gone", i, held, hash)
			}
		}
		if len(h.held) < len(b.l.all) && b.l.missing == 0 {
			t.Fatalf("listener %d has heard of %d prompts, not of %d", i, len(h.held), len(b.l.all))
		}
	}
	if len(b.l.all) > most+sequences {
		t.Fatalf("%d prompts are followed, %d of them inside", len(b.l.all), len(b.open))
	}
	for hash, p := range b.l.all {
		if inside := slices.ContainsFunc(b.open, func(pg *page) bool { return pg.p == p }); inside != (p.inside > 0) {
			t.Fatalf("prompt %d has %d requests inside: %t", hash, p.inside, inside)
		}
		if p.inside == 0 && p.news.Held > uint32(p.mark.Tokens()/16) {
			t.Fatalf("%d blocks of prompt %d are told, %d tokens are there", p.news.Held, hash, p.mark.Tokens())
		}
	}
}

func TestWhoeverListensKnowsWhatTheLedgerFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &library{c: kvcache.New(kvcache.Options{Blocks: rapid.SampledFrom([]int{6, 12, 40}).Draw(t, "blocks"), Sequences: sequences, MaxIdle: 4})}
		b.l = newLedger(b.c, 0, 0)
		most := rapid.SampledFrom([]int{2, 5, 100}).Draw(t, "followed")
		b.l.most, b.l.last = most, rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "gone")
		b.hear = []*listener{{held: map[uint64]uint32{}}}
		for range 60 {
			switch what := rapid.IntRange(0, 6).Draw(t, "what"); {
			case what == 0 && len(b.hear) < 4:
				b.hear = append(b.hear, &listener{held: map[uint64]uint32{}})
			case what == 1:
				rapid.SampledFrom(b.hear).Draw(t, "listener").hear(t, b.l, rapid.IntRange(1, 5).Draw(t, "most"))
			case what > 3 && len(b.open) > 0:
				b.end(t)
			default:
				b.begin(t)
			}
		}
		b.check(t, most)
	})
}

func TestOfBlocksOfTheCacheTheBlocksOfAPromptAreRoundedDown(t *testing.T) {
	for _, c := range []struct {
		name   engine.PromptName
		tokens int
		held   int // blocks of the cache
		want   uint32
	}{
		{engine.PromptName{Hash: 1, Blocks: 10, Bytes: 650}, 200, 12, 10}, // all that it fills
		{engine.PromptName{Hash: 2, Blocks: 10, Bytes: 650}, 200, 6, 4},   // 312 bytes
		{engine.PromptName{Hash: 3, Blocks: 10}, 160, 5, 5},
		{engine.PromptName{Hash: 4, Blocks: 16384, Bytes: 1 << 62}, 16, 0, 0},
	} {
		p := &prompt{bytes: min(max(c.name.Bytes, uint64(c.name.Blocks)*64), mostBytes), tokens: c.tokens}
		p.news.Blocks = c.name.Blocks
		if got := p.held(c.held * kvcache.BlockTokens); got != c.want {
			t.Errorf("%d blocks of the cache are %d of %+v, want %d", c.held, got, c.name, c.want)
		}
	}
}

func TestARequestThatIsCancelledBeforeItBeganIsNotSaidToBeThere(t *testing.T) {
	r := newRig(t, &gate{}, sim.Options{Text: "hi", ContextTokens: 256, Sequences: 4, KVTokens: 512}, func(o *Options) { o.MaxSequences = 1 })
	follower := r.Engine.(engine.Follower)
	r.gate.close()
	name := func(q *engine.Request, hash uint64) *engine.Request {
		q.Prompt = engine.Prompt{Tokens: slices.Repeat([]engine.Token{engine.Token(hash)}, 40)}
		q.Name = engine.PromptName{Hash: hash, Blocks: 2, Bytes: 160}
		return q
	}
	one, err := r.Generate(context.Background(), name(ask("a", 5), 1))
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.Generate(context.Background(), name(ask("b", 5), 2))
	if err != nil {
		t.Fatal(err)
	}
	if got := two.(engine.Numbered).PromptNumber(); got != 2 {
		t.Errorf("the second prompt has number %d", got)
	}
	_ = two.Close()
	r.gate.open()
	if _, _, err := read(one); err != nil {
		t.Error(err)
	}
	_ = one.Close()
	news, next, whole := follower.Prompts(0, 10)
	want := []engine.PromptNews{{Hash: 1, Blocks: 2, Held: 2, Number: 1}, {Hash: 2, Blocks: 2, Held: 0, Number: 3}}
	if !slices.Equal(news, want) || next != 4 || !whole {
		t.Errorf("%v, next %d, whole %t", news, next, whole)
	}
}

func TestWhatAnAdapterHasComputedIsGoneWithTheAdapter(t *testing.T) {
	r := newRig(t, &gate{}, sim.Options{Text: "hi", ContextTokens: 256, Sequences: 4, KVTokens: 512, Adapters: true}, nil)
	tuned := engine.Adapter{Name: "tuned", Path: "tuned.gguf"}
	if err := r.LoadAdapter(context.Background(), tuned); err != nil {
		t.Fatal(err)
	}
	for i, adapter := range []string{"tuned", ""} {
		q := ask("a", 5)
		q.Adapter, q.Prompt = adapter, engine.Prompt{Tokens: make([]engine.Token, 40)}
		q.Name = engine.PromptName{Hash: uint64(i + 1), Blocks: 2, Bytes: 160}
		s, err := r.Generate(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(s); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	}
	if err := r.LoadAdapter(context.Background(), tuned); err != nil { // another file under the same name
		t.Fatal(err)
	}
	news, _, _ := r.Engine.(engine.Follower).Prompts(0, 10)
	want := []engine.PromptNews{{Hash: 2, Blocks: 2, Held: 2, Number: 2}, {Hash: 1, Blocks: 2, Held: 0, Number: 3}}
	if !slices.Equal(news, want) {
		t.Errorf("%v", news)
	}
}
