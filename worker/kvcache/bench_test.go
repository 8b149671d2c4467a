package kvcache

import "testing"

// BenchmarkDecode is what a step of 16 streams costs: one token for each, and the operations for the device. Every 16th
// step of a stream ends a block, which is hashed.
func BenchmarkDecode(b *testing.B) {
	const streams, length = 16, 2048
	c := New(Options{Blocks: streams * length / BlockTokens, Sequences: 256, MaxIdle: 128})
	tables := make([]*Table, streams)
	token := make([]Token, 1)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%length == 0 {
			b.StopTimer()
			for i := range tables {
				if tables[i] != nil {
					c.Close(tables[i], false)
				}
				tables[i], _ = c.Open(Key{}, []Token{Token(i)})
				grow(b, c, tables[i], i) // streams end their blocks in different steps
				c.Append(tables[i], make([]Token, i))
			}
			b.StartTimer()
		}
		for i, t := range tables {
			if t.Len() == length {
				continue
			}
			token[0] = Token(n*streams + i)
			grow(b, c, t, t.Len()+1)
			c.Append(t, token)
		}
		c.Ops()
	}
}

// BenchmarkRequest opens a table on a cached prefix of 512 tokens, and closes it.
func BenchmarkRequest(b *testing.B) {
	c := New(Options{Blocks: 512, Sequences: 256, MaxIdle: 128})
	prompt := make([]Token, 513)
	first, _ := c.Open(Key{}, prompt)
	grow(b, c, first, 512)
	c.Append(first, prompt[:512])
	c.Close(first, true)
	b.ReportAllocs()
	for b.Loop() {
		t, err := c.Open(Key{}, prompt)
		if err != nil || t.Cached() != 512 {
			b.Fatal(err)
		}
		grow(b, c, t, 513)
		c.Close(t, true)
		c.Ops()
	}
}

// BenchmarkEvict grows tables through a cache that is full of idle chains.
func BenchmarkEvict(b *testing.B) {
	const chains, blocks = 128, 32
	c := New(Options{Blocks: chains * blocks, Sequences: 256, MaxIdle: chains})
	tokens := make([]Token, blocks*BlockTokens)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		tokens[0] = Token(n)
		t, _ := c.Open(Key{}, tokens)
		grow(b, c, t, len(tokens))
		c.Append(t, tokens)
		c.Close(t, true)
		c.Ops()
	}
}

func grow(b *testing.B, c *Cache, t *Table, tokens int) {
	if err := c.Grow(t, tokens); err != nil {
		b.Fatal(err)
	}
}
