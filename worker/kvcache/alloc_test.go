package kvcache

import "testing"

func TestATokenThatIsDecodedAllocatesNothing(t *testing.T) {
	c := New(Options{Blocks: 256, Sequences: 4, MaxIdle: 2})
	table, err := c.Open(Key{Salt: "acme"}, []Token{1})
	if err != nil {
		t.Fatal(err)
	}
	token := []Token{1}
	decode := func() {
		if err := c.Grow(table, table.Len()+1); err != nil {
			t.Fatal(err)
		}
		c.Append(table, token)
		c.Ops()
	}
	for range 2048 { // the list of the sequence's blocks has grown
		decode()
	}
	c.Truncate(table, 0)
	if n := testing.AllocsPerRun(1000, decode); n != 0 {
		t.Errorf("%v allocations for a token, hashing of full blocks included", n)
	}
}
