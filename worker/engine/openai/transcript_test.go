package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// TestRequestsAreTranslated shows what becomes of a request at each kind of server. The transcripts' input is JSON of an
// engine.Request, with messages and tools as text.
func TestRequestsAreTranslated(t *testing.T) {
	datadriven.Walk(t, "testdata/requests", func(t *testing.T, file string) {
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var in struct {
				engine.Request
				Messages, Tools, Schema string
				Choice                  int
			}
			decoder := json.NewDecoder(strings.NewReader(d.Input))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&in); err != nil {
				d.Fatalf(t, "%v", err)
			}
			r := in.Request
			if in.Messages != "" {
				r.Prompt.Chat = &engine.Chat{Messages: []byte(in.Messages), Tools: []byte(in.Tools)}
			}
			r.JSONSchema = []byte(in.Schema)
			to := target{kind: Kind(d.Cmd), model: "m", context: 100, vocab: 50, tools: !d.HasArg("toolless"), priorities: d.HasArg("priorities")}
			put, _, err := (&Driver{}).resume(context.Background(), to, &r)
			var path string
			var b body
			if err == nil {
				path, b, err = translate(to, put, in.Choice)
			}
			if errors.Is(err, engine.ErrNoResume) {
				return fmt.Sprintf("not gone on with: %v\n", err)
			}
			if err != nil {
				invalid := (*engine.InvalidError)(nil)
				if !errors.As(err, &invalid) {
					d.Fatalf(t, "the error is %v", err)
				}
				return fmt.Sprintf("refused: %s (%s): %s\n", invalid.Field, invalid.Code, invalid.Message)
			}
			return path + "\n" + lines(t, b)
		})
	})
}

// lines writes a body with a line for each member.
func lines(t *testing.T, b body) string {
	var out []string
	for k, v := range b {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("  %s: %s", k, text))
	}
	slices.Sort(out)
	return strings.Join(out, "\n") + "\n"
}

// TestStreamsAreUnderstood shows the chunks that servers' streams become. \xNN in the input is a byte.
func TestStreamsAreUnderstood(t *testing.T) {
	datadriven.Walk(t, "testdata/streams", func(t *testing.T, file string) {
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			raw := escaped(t, d.Input)
			whole, pieces := understand(strings.NewReader(raw)), understand(iotest.OneByteReader(strings.NewReader(raw)))
			if whole != pieces {
				t.Errorf("%s: byte after byte it becomes\n%s\nand at once\n%s", d.Pos, pieces, whole)
			}
			return whole
		})
	})
}

func escaped(t *testing.T, s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\x`)
		b.WriteString(before)
		if !found {
			return b.String() + "\n\n"
		}
		n, err := strconv.ParseUint(after[:2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteByte(byte(n))
		s = after[2:]
	}
}

// understand reads a stream as a driver does.
func understand(r io.Reader) string {
	var b strings.Builder
	a := &assembler{request: "request", field: "prompt"}
	for in := newEvents(r, eventBytes); ; {
		e, err := in.next()
		if errors.Is(err, io.EOF) || string(e.data) == "[DONE]" {
			break
		}
		if err == nil && e.name == "error" {
			err = a.failed(e.data)
		}
		var c engine.Chunk
		if err == nil {
			c, _, err = a.push(e.data)
		}
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			return b.String()
		}
		show(&b, c)
	}
	c, err := a.end()
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
		return b.String()
	}
	show(&b, c)
	fmt.Fprintf(&b, "%s, usage %+v\n", c.Finish, c.Usage)
	return b.String()
}

func show(b *strings.Builder, c engine.Chunk) {
	if worth(&c) {
		fmt.Fprintf(b, "%q", c.Text)
		if c.Reasoning != "" {
			fmt.Fprintf(b, " thinks %q", c.Reasoning)
		}
		if c.Tokens != nil {
			fmt.Fprintf(b, " tokens %v", c.Tokens)
		}
		for _, call := range c.ToolCalls {
			fmt.Fprintf(b, " call %d %s %s(%s)", call.Index, call.ID, call.Name, call.Arguments)
		}
		b.WriteString("\n")
	}
	for _, l := range c.Logprobs {
		fmt.Fprintf(b, "  %d %q %.2f", l.Token, l.Bytes, l.Logprob)
		for _, top := range l.Top {
			fmt.Fprintf(b, ", %d %q %.2f", top.Token, top.Bytes, top.Logprob)
		}
		b.WriteString("\n")
	}
}

// TestMetricsAreTranslated shows what pages of metrics say. What they don't say is unknown, and never 0.
func TestMetricsAreTranslated(t *testing.T) {
	datadriven.RunTest(t, "testdata/metrics/pages", func(t *testing.T, d *datadriven.TestData) string {
		f, err := parseMetrics(strings.NewReader(d.Input + "\n"))
		if err != nil {
			return fmt.Sprintf("error: %v\n", err)
		}
		drv := &Driver{o: Options{MaxSequences: 4}, about: about{kind: VLLM}, seen: f}
		s := drv.Stats()
		show := func(v *int64) string {
			if v == nil {
				return "unknown"
			}
			return strconv.FormatInt(*v, 10)
		}
		return fmt.Sprintf("running %s, waiting %s\nblocks %s of %s, of %d tokens\ncache: %s of %s found\npreempted %s, evicted %s\nstarted %s\ncomputed %s\n",
			show(whole(f.running)), show(whole(f.waiting)), show(s.KVBlocksUsed), show(s.KVBlocksTotal), s.KVBlockTokens,
			show(s.CacheHits), show(s.CacheQueries), show(s.Preemptions), show(s.Evictions), show(whole(f.started)), show(s.Progress))
	})
}

func TestRatesAreThoseOfTheSecondsWithWork(t *testing.T) {
	var r rates
	n := func(v float64) *float64 { return &v }
	at := time.Unix(1_800_000_000, 0)
	look := func(seconds, generated, running, prefilled, prefillSeconds float64) {
		at = at.Add(time.Duration(seconds * float64(time.Second)))
		r.add(at, figures{generated: n(generated), running: n(running), prefilled: n(prefilled), prefillSeconds: n(prefillSeconds)})
	}
	look(1, 1000, 1, 500, 10)
	if r.decode.perSecond() != nil || r.prefill.perSecond() != nil {
		t.Error("there is a rate after one look")
	}
	look(1, 1050, 1, 700, 11)
	look(100, 1050, 1, 700, 11) // busy until now, so these seconds count
	if v := r.decode.perSecond(); v == nil || *v > 50 {
		t.Errorf("the rate is %v", v)
	}
	look(100, 1050, 0, 700, 11) // the second look after the end
	look(100, 1050, 0, 700, 11)
	before := *r.decode.perSecond()
	look(100, 1050, 0, 700, 11)
	if *r.decode.perSecond() != before {
		t.Error("idle seconds change the rate")
	}
	if v := r.prefill.perSecond(); v == nil || *v != 200 {
		t.Errorf("prompts are computed at %v tokens per second; 200 took one second", *v)
	}
	look(1, 10, 0, 5, 1) // counters that went back say nothing
	if *r.decode.perSecond() != before {
		t.Error("a restart changes the rate")
	}
}

// TestCharactersAreNeverCut: whatever the borders are, the pieces are whole characters and join to the text.
func TestCharactersAreNeverCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		var c characters
		var got strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			piece := c.add(rest[:n], false)
			if strings.ContainsRune(piece, '\uFFFD') && !strings.ContainsRune(text, '\uFFFD') {
				t.Fatalf("a piece is %q", piece)
			}
			got.WriteString(piece)
			rest = rest[n:]
		}
		got.WriteString(c.rest())
		if got.String() != text {
			t.Fatalf("got %q of %q", got.String(), text)
		}
	})
}

// TestTheDocumentedTableIsTheOneInForce compares docs/engines.md with the table in the code. -rewrite does not change it.
func TestTheDocumentedTableIsTheOneInForce(t *testing.T) {
	var want strings.Builder
	want.WriteString("| field | VLLM | SGLang | LlamaServer | OpenAI |\n|---|---|---|---|---|\n")
	for _, f := range Fields {
		fmt.Fprintf(&want, "| `%s` |", f)
		for _, k := range []Kind{VLLM, SGLang, LlamaServer, OpenAI} {
			how := Treatment(k, f)
			if how != "dropped" && how != "refused" {
				how = "`" + how + "`"
			}
			fmt.Fprintf(&want, " %s |", how)
		}
		want.WriteString("\n")
	}
	page, err := os.ReadFile("../../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/engines.md lacks this table:\n%s", want.String())
	}
}
