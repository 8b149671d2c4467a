package openai

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestTokensComeFromTheServersOwnTokenizer(t *testing.T) {
	for owner, c := range map[string]struct {
		prompt engine.Prompt
		want   string // the bodies that its endpoints got
	}{
		"vllm":     {engine.Prompt{Text: "a"}, "/tokenize map[model:m prompt:a]"},
		"sglang":   {engine.Prompt{Chat: &engine.Chat{Messages: []byte(`[{"role":"user"}]`)}}, "/tokenize map[messages:[map[role:user]] model:m]"},
		"llamacpp": {engine.Prompt{Chat: &engine.Chat{Messages: []byte(`[{"role":"user"}]`)}}, "/apply-template map[messages:[map[role:user]] model:m]; /tokenize map[add_special:true content:rendered parse_special:true]"},
	} {
		d := newDouble(t, owner)
		var got []string
		note := func(answer string) func(http.ResponseWriter, *http.Request, map[string]any) {
			return func(w http.ResponseWriter, r *http.Request, body map[string]any) {
				got = append(got, fmt.Sprint(r.URL.Path, " ", body))
				fmt.Fprint(w, answer)
			}
		}
		d.paths["/tokenize"], d.paths["/apply-template"] = note(`{"count":2,"tokens":[7,8]}`), note(`{"prompt":"rendered"}`)
		w := watchIt(t, d)
		tokens, err := w.Tokenize(context.Background(), c.prompt)
		if err != nil || !slices.Equal(tokens, []engine.Token{7, 8}) || strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %v (%v) after %q", owner, tokens, err, got)
		}
	}
}

func TestAServerWithoutATokenizerSaysSo(t *testing.T) {
	w := watchIt(t, newDouble(t, "somebody"))
	if _, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"}); !isInvalid(err) {
		t.Errorf("the error is %v", err)
	}
	if tokens, err := w.Tokenize(context.Background(), engine.Prompt{Tokens: []engine.Token{1, 2}}); err != nil || len(tokens) != 2 {
		t.Errorf("tokens of tokens are %v (%v)", tokens, err)
	}
}

// embedding answers with a vector for each input, in another order: its number, and the input's number less one.
func embedding(asText bool) func(http.ResponseWriter, *http.Request, map[string]any) {
	return func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		inputs, ok := body["input"].([]any)
		if !ok {
			inputs = []any{body["input"]}
		}
		var data []string
		for i := range inputs {
			v := []float32{3 * float32(i+1), 4 * float32(i+1)}
			text := fmt.Sprintf("[%v,%v]", v[0], v[1])
			if asText {
				raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v[0]))
				text = `"` + base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(raw, math.Float32bits(v[1]))) + `"`
			}
			data = append(data, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, text))
		}
		slices.Reverse(data)
		fmt.Fprintf(w, `{"data":[%s],"usage":{"prompt_tokens":%d}}`, strings.Join(data, ","), len(inputs))
	}
}

func TestEmbeddingsHaveUnitLengthInEitherForm(t *testing.T) {
	for _, asText := range []bool{true, false} {
		d := newDouble(t, "vllm")
		d.paths[embeddingsPath] = embedding(asText)
		w := watchIt(t, d)
		if !w.Info().Caps.Embeddings {
			t.Error("embeddings are not claimed")
		}
		inputs := slices.Repeat([]engine.Prompt{{Text: "a"}, {Tokens: []engine.Token{1}}}, 50)
		got, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: inputs})
		if err != nil || len(got.Vectors) != 100 || got.PromptTokens != 100 {
			t.Fatalf("100 inputs gave %+v (%v)", got, err)
		}
		for i, v := range got.Vectors {
			if math.Abs(float64(v[0])-0.6) > 1e-6 || math.Abs(float64(v[1])-0.8) > 1e-6 {
				t.Errorf("vector %d is %v", i, v)
			}
		}
		if n := d.times(embeddingsPath); n != 3 {
			t.Errorf("they were asked for in %d requests, the probe's included", n)
		}
	}
}

func TestWrongEmbeddingsAreErrors(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[embeddingsPath] = embedding(false)
	w := watchIt(t, d)
	for name, answer := range map[string]string{
		"too few":         `{"data":[]}`,
		"one twice":       `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`,
		"one of nothing":  `{"data":[{"index":0,"embedding":[0,0]},{"index":1,"embedding":[1]}]}`,
		"an index beyond": `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`,
		"half a number":   `{"data":[{"index":0,"embedding":"AAAA"},{"index":1,"embedding":[1]}]}`,
	} {
		d.change(func(d *double) {
			d.paths[embeddingsPath] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, answer) }
		})
		_, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: "a"}, {Text: "b"}}})
		if err == nil || isInvalid(err) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	for name, p := range map[string]engine.Prompt{"nothing": {}, "a chat": {Chat: &engine.Chat{}}, "no UTF-8": {Text: "\xff"}} {
		if _, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{p}}); !isInvalid(err) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestAServerOfEmbeddingsAloneIsLoaded(t *testing.T) {
	d := newDouble(t, "vllm")
	missing := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(http.StatusNotFound) }
	d.paths[completionPath], d.paths[chatPath], d.paths[embeddingsPath] = missing, missing, embedding(false)
	w := watchIt(t, d)
	if c := w.Info().Caps; !c.Embeddings || c.Tools {
		t.Errorf("it can %+v", c)
	}
}

func TestToolsAreClaimedWhereTheServerTakesThemAndTheTemplateShowsThem(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *double)
		want   bool
	}{
		"both":        {func(*double) {}, true},
		"no template": {func(d *double) { d.blind = true }, false},
		"no such server": {func(d *double) {
			d.paths[chatPath] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(http.StatusBadRequest) }
		}, false},
	} {
		d := newDouble(t, "llamacpp")
		c.change(d)
		if got := watchIt(t, d).Info().Caps.Tools; got != c.want {
			t.Errorf("%s: claimed is %t", name, got)
		}
	}
}

func TestAServerWithoutHealthIsAskedForItsModels(t *testing.T) {
	d := newDouble(t, "somebody")
	d.health = http.StatusNotFound
	d.context = 0
	w := watchIt(t, d, func(o *Options) { o.ContextTokens = 99 })
	if i := w.Info(); i.ContextTokens != 99 || d.times(modelsPath) < 2 {
		t.Errorf("its context is %d; its models were asked for %d times", i.ContextTokens, d.times(modelsPath))
	}
}

func TestAModelThatTheServerDoesNotListIsNotLoaded(t *testing.T) {
	w := newWatched(t, newDouble(t, "vllm").url(), func(o *Options) { o.Model = "other" })
	w.until("its list was read", func(s State) bool { return strings.Contains(s.Message, `of 1 models none is "other"`) })
}

func TestTheServersKeyIsSentAndNeverTold(t *testing.T) {
	d := newDouble(t, "vllm")
	var sent string
	d.paths["/tokenize"] = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		sent = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
	}
	w := watchIt(t, d, func(o *Options) { o.APIKey = "very-secret" })
	_, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"})
	if sent != "Bearer very-secret" || err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("sent %q; the error is %v", sent, err)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	good := Options{BaseURL: "http://127.0.0.1:1", MaxSequences: 1, Interval: 1, Patience: 1, Warmup: 1, Stall: 1,
		Clock: testclock.NewFakeClock(time.Unix(0, 0))}
	for name, change := range map[string]func(*Options){
		"no address":        func(o *Options) { o.BaseURL = "" },
		"another scheme":    func(o *Options) { o.BaseURL = "unix:///x" },
		"a kind unheard of": func(o *Options) { o.Kind = "Other" },
		"no sequences":      func(o *Options) { o.MaxSequences = 0 },
		"no stall time":     func(o *Options) { o.Stall = 0 },
		"no clock":          func(o *Options) { o.Clock = nil },
	} {
		o := good
		change(&o)
		if d, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
			_ = d.Close()
		}
	}
}

func TestStatsCountWhatWasSentAtOnce(t *testing.T) {
	d := newDouble(t, "vllm")
	d.metrics = said(0, 0, 0)
	w := watchIt(t, d)
	d.neverEnd()
	s, err := w.Generate(context.Background(), text("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	if got := w.Stats(); got.Running+got.Waiting != 1 || !slices.Equal(got.RequestIDs, []string{"r"}) {
		t.Errorf("the figures are %+v", got)
	}
	d.change(func(d *double) { d.metrics = "nothing_of_use 1\n" })
	w.pass("they are unknown", func() bool { return w.Stats().KVBlocksTotal == nil })
	if got := w.Stats(); got.Running != 1 || got.Waiting != 0 {
		t.Errorf("without the server's figures they are %+v", got)
	}
}

// What a server says is as old as the last look, and the worker is its only client: to count what has ended since would have
// routers think that somebody else sends requests.
func TestStatsCountNoRequestThatHasEnded(t *testing.T) {
	d := newDouble(t, "vllm")
	d.metrics = said(0, 0, 0)
	w := watchIt(t, d)
	d.neverEnd()
	s, err := w.Generate(context.Background(), text("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	d.change(func(d *double) { d.metrics = said(3, 2, 1) })
	w.pass("the server's figures are seen", func() bool { return *w.Stats().KVBlocksUsed == 1 })
	if got := w.Stats(); got.Running != 1 || got.Waiting != 0 {
		t.Errorf("one is inside, and the figures are %+v", got)
	}
}

func TestStatsCountEachChoiceUntilItEnds(t *testing.T) {
	d := newDouble(t, "vllm")
	d.metrics = said(0, 0, 0)
	w := watchIt(t, d)
	var begun atomic.Int32
	first := make(chan struct{})
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			words(w, "a")
			if begun.Add(1) > 1 {
				d.hang(r)
				return
			}
			select {
			case <-first:
				speak(w, "b")
			case <-r.Context().Done():
			}
		}
	})
	q := text("a")
	q.Choices = 3
	s, err := w.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	d.change(func(d *double) { d.metrics = said(2, 1, 1) })
	w.pass("the server's figures are seen", func() bool { return *w.Stats().KVBlocksUsed == 1 })
	if got := w.Stats(); got.Running != 2 || got.Waiting != 1 || !slices.Equal(got.RequestIDs, []string{"r"}) {
		t.Errorf("three choices are inside, of which two run, and the figures are %+v", got)
	}
	close(first)
	wait(t, "one choice has ended", func() bool { got := w.Stats(); return got.Running == 2 && got.Waiting == 0 })
}

// said is what a server says of its requests and its KV cache.
func said(running, waiting, blocks int) string {
	return fmt.Sprintf("vllm:num_requests_running %d\nvllm:num_requests_waiting %d\nvllm:kv_cache_usage_perc %g\n"+
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n", running, waiting, float64(blocks)/10)
}
