package kvcache

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts plays the files of testdata/transcripts. Tokens are written as pieces: sys:32 is 32 tokens, always the same ones, and
// the beginning of sys:40. What a command leaves is written so:
//
//	sequence 0  a       37 tokens  [0 1 2]     the blocks of table a
//	sequence 1  idle    32 tokens  [0 3]       a chain that is kept to be hit
//	free 4, active 3, cached 1                 blocks; then the cached ones, the first to give way first
//	pending: fork 0 to 2 (32)                  what the device does before its next pass
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			out := s.play(t, td)
			if err := s.check(); err != nil {
				t.Fatalf("%s: %v", td.Pos, err)
			}
			if td.Cmd == "lookup" || td.Cmd == "stats" {
				return out
			}
			return out + s.state()
		})
	})
}

type script struct {
	c      *Cache
	d      *device
	tables []*actor
}

type actor struct {
	name   string
	t      *Table
	key    Key
	tokens []Token // computed
	todo   []Token // of the prompt
}

func (s *script) play(t *testing.T, td *datadriven.TestData) string {
	var words []string
	options := map[string]string{}
	for _, a := range td.CmdArgs {
		if len(a.Vals) > 0 {
			options[a.Key] = a.Vals[0]
		} else {
			words = append(words, a.Key)
		}
	}
	number := func(key string) int {
		n, _ := strconv.Atoi(options[key])
		return n
	}
	key := Key{Salt: options["salt"], Adapter: options["adapter"]}
	switch td.Cmd {
	case "new":
		o := Options{Blocks: number("blocks"), Sequences: number("sequences"), MaxIdle: number("max-idle"), IdleBlocks: number("idle-blocks")}
		*s = script{c: New(o), d: newDevice(o.Sequences)}
		return ""
	case "lookup":
		return fmt.Sprintf("%d tokens\n", s.c.Lookup(key, pieces(t, words)))
	case "open":
		return s.open(words[0], key, pieces(t, words[1:]))
	case "stats":
		c := s.c.Stats()
		return fmt.Sprintf("hits %d of %d, evictions %d, forks %d, copies %d; %d tokens, room for %d more\n",
			c.Hits, c.Queries, c.Evictions, c.Forks, c.Copies, c.Tokens, c.Waste)
	}
	i := slices.IndexFunc(s.tables, func(a *actor) bool { return a.name == words[0] })
	if i < 0 {
		t.Fatalf("%s: there is no table %s", td.Pos, words[0])
	}
	a := s.tables[i]
	switch td.Cmd {
	case "compute", "refused", "aborted":
		return s.step(td.Cmd, a, pieces(t, words[1:]), options["closing"])
	case "fork":
		f, err := s.c.Fork(a.t)
		if err != nil {
			return err.Error() + "\n"
		}
		s.tables = append(s.tables, &actor{words[1], f, a.key, slices.Clone(a.tokens), slices.Clone(a.todo)})
	case "truncate":
		n, _ := strconv.Atoi(words[1])
		s.c.Truncate(a.t, n)
		a.tokens, a.todo = a.tokens[:a.t.Len()], nil
	case "close":
		s.close(a.name, slices.Contains(words, "keep"))
	default:
		t.Fatalf("%s: there is no command %s", td.Pos, td.Cmd)
	}
	return ""
}

func (s *script) open(name string, k Key, tokens []Token) string {
	table, err := s.c.Open(k, tokens)
	if err != nil {
		return err.Error() + "\n"
	}
	n := table.Cached()
	s.tables = append(s.tables, &actor{name, table, k, slices.Clone(tokens[:n]), tokens[n:]})
	return fmt.Sprintf("%d of %d tokens are cached\n", n, len(tokens))
}

func (s *script) close(name string, keep bool) {
	s.tables = slices.DeleteFunc(s.tables, func(a *actor) bool {
		if a.name == name {
			s.c.Close(a.t, keep)
		}
		return a.name == name
	})
}

// step grows a table for the rest of its prompt and some output, and runs it on the device, while closing is closed.
func (s *script) step(how string, a *actor, output []Token, closing string) string {
	next := append(a.todo, output...)
	if err := s.c.Grow(a.t, a.t.Len()+len(next)); err != nil {
		return err.Error() + "\n"
	}
	ops := s.c.Ops()
	s.close(closing, false)
	if how == "refused" {
		s.c.Unrun()
		return ""
	}
	out := "device: " + list(ops) + fmt.Sprintf("compute %d in %d\n", len(next), a.t.Seq())
	if err := errors.Join(s.d.run(ops), s.d.compute(a.t.Seq(), a.t.Len(), a.key, next)); err != nil {
		return err.Error() + "\n"
	}
	if how == "aborted" {
		s.c.Truncate(a.t, a.t.Len())
		return out
	}
	s.c.Append(a.t, next)
	a.tokens, a.todo = append(a.tokens, next...), nil
	return out
}

// check compares the device, as it will be, with the tables.
func (s *script) check() error {
	d := newDevice(len(s.d.seqs))
	for i, cells := range s.d.seqs {
		d.seqs[i] = slices.Clone(cells)
	}
	errs := []error{d.run(s.c.pending), sound(s.c)}
	for _, a := range s.tables {
		errs = append(errs, d.holds(a.t.Seq(), a.key, a.tokens))
	}
	return errors.Join(errs...)
}

func (s *script) state() string {
	var b strings.Builder
	for _, q := range s.c.seqs {
		name, tokens := "", len(q.blocks)*BlockTokens
		if len(q.blocks) > 0 {
			name = "idle"
		}
		for _, a := range s.tables {
			if a.t.Seq() == int(q.id) {
				name, tokens = a.name, a.t.Len()
			}
		}
		if name != "" {
			fmt.Fprintf(&b, "sequence %d  %-4s %4d tokens  %v\n", q.id, name, tokens, q.blocks)
		}
	}
	c := s.c.Stats()
	fmt.Fprintf(&b, "free %d, active %d, cached %d", c.Free, c.Active, c.Cached)
	if c.Cached > 0 {
		b.WriteString(": ")
		p := &s.c.pool
		for i := p.oldest(); int(i) < len(p.blocks)-1; i = p.blocks[i].newer {
			fmt.Fprintf(&b, "%d ", i)
		}
	}
	text := strings.TrimRight(b.String(), " ") + "\n"
	if len(s.c.pending) > 0 {
		text += "pending: " + strings.TrimSuffix(list(s.c.pending), ", ") + "\n"
	}
	return text
}

// list writes operations, each with a comma.
func list(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		switch op.Kind {
		case OpFork:
			fmt.Fprintf(&b, "fork %d to %d (%d), ", op.Src, op.Dst, op.N)
		case OpTruncate:
			fmt.Fprintf(&b, "truncate %d to %d, ", op.Dst, op.N)
		case OpDrop:
			fmt.Fprintf(&b, "drop %d, ", op.Dst)
		}
	}
	return b.String()
}

// pieces are the tokens of words such as sys:32.
func pieces(t *testing.T, words []string) (tokens []Token) {
	for _, w := range words {
		name, length, _ := strings.Cut(w, ":")
		n, err := strconv.Atoi(length)
		if err != nil {
			t.Fatalf("%q is no piece of a prompt", w)
		}
		for i := range n {
			h := fnv.New32a()
			fmt.Fprintf(h, "%s %d", name, i)
			tokens = append(tokens, Token(h.Sum32()>>1))
		}
	}
	return tokens
}
