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

// listener is one who hears all that a ledger has to tell: how much of which prompt it holds, and which is held for another one.
type listener struct {
	next  uint64
	heard uint64
	held  map[uint64]uint32
	heirs map[uint64]uint64
}

func newListener() *listener { return &listener{held: map[uint64]uint32{}, heirs: map[uint64]uint64{}} }

func (h *listener) hear(t *rapid.T, l *ledger, most int) {
	news, next, missed := l.since(h.next, most)
	if h.heard < missed {
		next := h.next
		*h = *newListener()
		h.next, h.heard = next, missed
	}
	last := h.next
	for _, n := range news {
		if n.Number < last || n.Number >= next {
			t.Fatalf("number %d is told between %d and %d", n.Number, last, next)
		}
		last = n.Number + 1
		h.heard = max(h.heard, n.Number)
		delete(h.heirs, n.Hash)
		if h.held[n.Hash] = n.Held; n.Held == 0 || n.Heir != 0 {
			delete(h.held, n.Hash)
		}
		if n.Heir != 0 {
			h.heirs[n.Hash] = n.Heir
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
	blocks int
	c      *kvcache.Cache
	l      *ledger
	hear   []*listener
	open   []*page
}

// length is that of a token's text, some longer than others.
func length(t kvcache.Token) int { return 2 + int(t)%5 }

func textOf(tokens []kvcache.Token) (n int64) {
	for _, t := range tokens {
		n += int64(length(t))
	}
	return n
}

// page is a request.
type page struct {
	p      *prompt
	t      *kvcache.Table
	key    kvcache.Key
	tokens []kvcache.Token
}

// page is the prompt of a name: of some that have one, none of which begins the same way as another for long.
func (b *library) page(name uint64) *page {
	pg := &page{key: kvcache.Key{Salt: []string{"", "a"}[name%2]}}
	for k := range 16 * (1 + int(name)%5) {
		pg.tokens = append(pg.tokens, kvcache.Token(k/32)*kvcache.Token(name/4))
	}
	pg.tokens = append(pg.tokens, 99)
	return pg
}

func (b *library) begin(t *rapid.T) {
	first := rapid.Uint64Range(1, 12).Draw(t, "prompt")
	pg := b.page(first)
	table, err := b.c.Open(pg.key, pg.tokens)
	if err != nil {
		return
	}
	pg.t = table
	n := textOf(pg.tokens)
	name := engine.PromptName{Hash: first, Blocks: uint32(n / 64), Bytes: uint64(n)}
	if name.Blocks == 0 {
		name.Blocks = 1
	}
	pg.p = b.l.accept(name, len(pg.tokens), n, pg.key.Adapter)
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
func (b *library) check(t *rapid.T) {
	for i, h := range b.hear {
		for h.next <= b.l.number {
			h.hear(t, b.l, 3)
		}
		for hash, held := range h.held {
			if p := b.l.all[hash]; p == nil || p.news.Held != held {
				t.Fatalf("listener %d thinks that %d blocks of prompt %d are there, the ledger follows %+v", i, held, hash, p)
			}
		}
		if len(h.held) < len(b.l.all) && b.l.missed == 0 {
			t.Fatalf("listener %d has heard of %d prompts, not of %d", i, len(h.held), len(b.l.all))
		}
	}
	outside := 0
	for hash, p := range b.l.all {
		if inside := slices.ContainsFunc(b.open, func(pg *page) bool { return pg.p == p }); inside != (p.inside > 0) || inside != p.news.Inside {
			t.Fatalf("prompt %d has %d requests inside (told: %t): %t", hash, p.inside, p.news.Inside, inside)
		}
		if p.inside > 0 {
			continue
		}
		pg := b.page(hash)
		there := pg.tokens[:p.mark.Tokens()]
		if p.news.Held != min(uint32(textOf(there)/engine.PromptBlockBytes), p.news.Blocks) && p.mark.Tokens() < len(pg.tokens)/16*16 || p.news.Held == 0 {
			t.Fatalf("%d blocks of prompt %d are told, %d tokens with %d bytes are there", p.news.Held, hash, p.mark.Tokens(), textOf(there))
		}
		if m := p.mark.Beside(func(m *kvcache.Mark) bool { return m.Of.(*prompt).inside == 0 }); m != nil {
			t.Fatalf("prompts %d and %d are both followed at one block", hash, m.Of.(*prompt).news.Hash)
		}
		outside++
	}
	if outside > b.blocks {
		t.Fatalf("%d prompts are followed in %d blocks", outside, b.blocks)
	}
}

func TestWhoeverListensKnowsWhatTheLedgerFollows(t *testing.T) {
	yielded := 0
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SampledFrom([]int{6, 12, 40}).Draw(t, "blocks")
		b := &library{blocks: blocks, c: kvcache.New(kvcache.Options{Blocks: blocks, Sequences: sequences, MaxIdle: 4, Length: length})}
		b.l = newLedger(b.c)
		b.l.last = rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "gone")
		b.hear = []*listener{newListener()}
		for range 60 {
			switch what := rapid.IntRange(0, 6).Draw(t, "what"); {
			case what == 0 && len(b.hear) < 4:
				b.hear = append(b.hear, newListener())
			case what == 1:
				rapid.SampledFrom(b.hear).Draw(t, "listener").hear(t, b.l, rapid.IntRange(1, 5).Draw(t, "most"))
			case what > 3 && len(b.open) > 0:
				b.end(t)
			default:
				b.begin(t)
			}
		}
		b.check(t)
		for _, n := range b.l.gone {
			if n.Heir != 0 {
				yielded++
			}
		}
	})
	if yielded == 0 {
		t.Error("no prompt was left to another one")
	}
}

func TestTheTextThatIsHeldOfAPromptIsThatOfItsTokensLessATemplatesFront(t *testing.T) {
	for what, c := range map[string]struct {
		bytes, front int64 // of the name, and of what is put in front
		want         uint32
	}{
		"tokens of uneven length": {0, 0, 12},
		"text in front":           {0, 100, 10},
		"more in front than held": {0, 5000, 0},
		"a length beyond belief":  {1 << 62, 0, 12},
	} {
		cache := kvcache.New(kvcache.Options{Blocks: 200, Sequences: 4, MaxIdle: 3, Length: func(t kvcache.Token) int { return int(t) }})
		tokens := append(slices.Repeat([]kvcache.Token{1}, 480), slices.Repeat([]kvcache.Token{20}, 100)...)
		table, _ := cache.Open(kvcache.Key{}, tokens)
		_ = cache.Grow(table, 496)
		cache.Append(table, tokens[:496]) // 480 short ones, and 16 long ones: 800 bytes
		l := newLedger(cache)
		name := engine.PromptName{Hash: 1, Blocks: 38, Bytes: uint64(c.bytes)}
		if c.bytes == 0 {
			name.Bytes = 2480
		}
		p := l.accept(name, len(tokens), 2480+c.front, "")
		l.follow(p, table, len(tokens))
		l.leave(p)
		if p.news.Held != c.want {
			t.Errorf("%s: %d blocks are held, want %d", what, p.news.Held, c.want)
		}
	}
}

// TestALedgerNeverFills: all prompts begin alike, as with a template, and what is their own goes.
func TestALedgerNeverFills(t *testing.T) {
	const blocks = 40
	cache := kvcache.New(kvcache.Options{Blocks: blocks, Sequences: 4, MaxIdle: 3, Length: length})
	l := newLedger(cache)
	h := newListener()
	for i := range 3000 {
		tokens := append(slices.Repeat([]kvcache.Token{7}, 64), slices.Repeat([]kvcache.Token{kvcache.Token(100 + i)}, 80)...)
		table, err := cache.Open(kvcache.Key{}, tokens)
		if err != nil {
			t.Fatal(err)
		}
		p := l.accept(engine.PromptName{Hash: uint64(i + 1), Blocks: 9, Bytes: uint64(textOf(tokens))}, len(tokens), textOf(tokens), "")
		if err := cache.Grow(table, len(tokens)); err != nil {
			t.Fatal(err)
		}
		cache.Append(table, tokens[table.Len():])
		l.follow(p, table, len(tokens))
		cache.Close(table, true)
		l.leave(p)
		if len(l.all) > blocks {
			t.Fatalf("%d prompts are followed in %d blocks", len(l.all), blocks)
		}
		for before := uint64(0); before != h.next; {
			before = h.next
			news, next, missed := l.since(h.next, 1024)
			if missed > h.heard {
				t.Fatalf("after %d prompts a listener that was always there has missed something", i)
			}
			for _, n := range news {
				h.heard = n.Number
			}
			h.next = next
		}
	}
}

func TestWhatAnAdapterComputedBeforeItWasReplacedIsNotWhatAPromptHasNow(t *testing.T) {
	cache := kvcache.New(kvcache.Options{Blocks: 20, Sequences: 4, MaxIdle: 3, Length: length})
	l := newLedger(cache)
	tokens := slices.Repeat([]kvcache.Token{1}, 64)
	table, _ := cache.Open(kvcache.Key{Adapter: "old"}, tokens)
	_ = cache.Grow(table, 64)
	cache.Append(table, tokens)
	name := engine.PromptName{Hash: 1, Blocks: 4, Bytes: 256}
	p := l.accept(name, 64, 256, "old")
	l.follow(p, table, 64)
	cache.Close(table, true)
	l.leave(p)
	l.leave(l.accept(name, 64, 256, "new")) // cancelled before it began
	news, _, _ := l.since(0, 10)
	if len(news) != 1 || news[0].Held != 0 {
		t.Errorf("%+v", news)
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
	news, next, missed := follower.Prompts(0, 10)
	want := []engine.PromptNews{{Hash: 2, Blocks: 2, Held: 0, Number: 3}, {Hash: 1, Blocks: 2, Held: 2, Number: 4}}
	if !slices.Equal(news, want) || next != 5 || missed != 0 {
		t.Errorf("%v, next %d, missed %d", news, next, missed)
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
	want := []engine.PromptNews{{Hash: 2, Blocks: 2, Held: 2, Number: 4}, {Hash: 1, Blocks: 2, Held: 0, Number: 5}}
	if !slices.Equal(news, want) {
		t.Errorf("%v", news)
	}
}
