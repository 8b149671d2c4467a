package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"k8s.io/utils/clock"

	wire "github.com/ringfleet/ringfleet/router/openai"
)

const askEmbedding = `{"model":"small","input":["SECRET","b"]}`

// embeds is a worker that makes these vectors.
func embeds(vectors ...[]float32) *rig {
	r := newRig(clock.RealClock{})
	r.script.embed = func(context.Context, *Call) (*Embeddings, error) {
		return &Embeddings{Vectors: vectors, PromptTokens: 5, Worker: "worker-0"}, nil
	}
	return r
}

func TestOpenAIsClientGetsEmbeddings(t *testing.T) {
	for name, c := range map[string]struct {
		input openai.EmbeddingNewParamsInputUnion
		want  []wire.Input
	}{
		"of a string":           {openai.EmbeddingNewParamsInputUnion{OfString: openai.String("a")}, []wire.Input{{Text: "a"}}},
		"of several":            {openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}, []wire.Input{{Text: "a"}, {Text: "b"}}},
		"of tokens":             {openai.EmbeddingNewParamsInputUnion{OfArrayOfTokens: []int64{1, 2}}, []wire.Input{{Tokens: []uint32{1, 2}}}},
		"of several, as tokens": {openai.EmbeddingNewParamsInputUnion{OfArrayOfTokenArrays: [][]int64{{1}, {2}}}, []wire.Input{{Tokens: []uint32{1}}, {Tokens: []uint32{2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := embeds(slices.Repeat([][]float32{{0.6, -0.8}}, len(c.want))...)
			cl := client(t, r)
			got, err := cl.Embeddings.New(context.Background(), openai.EmbeddingNewParams{
				Model: "small", Input: c.input, EncodingFormat: openai.EmbeddingNewParamsEncodingFormatFloat, User: openai.String("u"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Model != "small" || got.Usage.PromptTokens != 5 || got.Usage.TotalTokens != 5 || len(got.Data) != len(c.want) {
				t.Fatalf("%+v", got)
			}
			last := got.Data[len(got.Data)-1]
			if int(last.Index) != len(c.want)-1 || math.Abs(last.Embedding[0]-0.6) > 1e-7 || math.Abs(last.Embedding[1]+0.8) > 1e-7 {
				t.Errorf("%+v", last)
			}
			call := r.script.calls[0]
			if call.ModelUID != "u1" || call.FirstByte != 2*time.Minute || !equalInputs(call.Embedding.Inputs, c.want) {
				t.Errorf("call %+v of %+v", call, call.Embedding)
			}
		})
	}
}

func equalInputs(a, b []wire.Input) bool {
	return slices.EqualFunc(a, b, func(x, y wire.Input) bool { return x.Text == y.Text && slices.Equal(x.Tokens, y.Tokens) })
}

func TestEmbeddingsAreCountedAndLoggedAndNeverQuoted(t *testing.T) {
	r := embeds([]float32{1}, []float32{1})
	w := r.do("POST", pathEmbeddings, askEmbedding)
	if w.Code != 200 || w.Header().Get("X-Ringfleet-Worker") != "worker-0" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if got := r.figures.String(); got != "org/small-1.0 ok" || r.figures.first != 0 {
		t.Errorf("counted as %q, %d first tokens", got, r.figures.first)
	}
	log := r.logged.String()
	if strings.Contains(log, "SECRET") || !strings.Contains(log, `"model":"org/small-1.0"`) || !strings.Contains(log, `"worker":"worker-0"`) || !strings.Contains(log, `"prompt_tokens":5`) {
		t.Errorf("logged %s", log)
	}
	if got := r.held.Load(); got != 0 {
		t.Errorf("%d bytes are held after the end", got)
	}
}

func TestEmbeddingsOfManyPiecesAreOneDocument(t *testing.T) {
	for _, format := range []string{"float", "base64"} {
		list := slices.Repeat([][]float32{slices.Repeat([]float32{0.015625}, 1024)}, 100)
		w := embeds(list...).do("POST", pathEmbeddings, `{"model":"small","input":"x","encoding_format":"`+format+`"}`)
		var got struct {
			Data []struct {
				Index     int
				Embedding json.RawMessage
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Data) != 100 || got.Data[99].Index != 99 {
			t.Errorf("%s: %v, %d vectors", format, err, len(got.Data))
		}
	}
}

func TestAFaultOfEmbeddingsBecomesItsStatus(t *testing.T) {
	for name, c := range faults {
		t.Run(name, func(t *testing.T) {
			r := embeds()
			r.script.embed = func(context.Context, *Call) (*Embeddings, error) { return nil, &c.fault }
			w := r.do("POST", pathEmbeddings, askEmbedding)
			_, kind, param, code := errorObject(t, w.Body.Bytes())
			if w.Code != c.status || kind != c.kind || code != c.code || param != c.fault.Param || (w.Header().Get("Retry-After") != "") != c.retry {
				t.Errorf("%d %q %q %q %v", w.Code, kind, code, param, w.Header())
			}
			if got := r.figures.String(); got != "org/small-1.0 "+c.outcome {
				t.Errorf("counted as %q", got)
			}
		})
	}
}

func TestEmbeddingsOfAnAdapterAreRefused(t *testing.T) {
	r := adapted()
	w := r.do("POST", pathEmbeddings, `{"model":"org/tuned","input":"x"}`)
	if message, _, param, code := errorObject(t, w.Body.Bytes()); w.Code != 400 || param != "model" || code != "invalid_value" || r.script.count() != 0 {
		t.Errorf("%d %s", w.Code, message)
	}
}

// sized is a request of one input whose body has that many bytes.
func sized(n int) string {
	const around = `{"model":"small","input":""}`
	return strings.Replace(around, `""`, `"`+strings.Repeat("x", n-len(around))+`"`, 1)
}

func TestEmbeddingsAreRefusedBeforeTheCallWhereTheirMemoryIsNotThere(t *testing.T) {
	const body = 20 << 10
	const need = 3*body + 1 + 64<<10 // the body, its text, that on the wire, and a vector of 8192 numbers twice
	r := embeds([]float32{1})
	others := r.cfg.MaxBodyBytesTotal - need + 1
	r.held.Store(others)
	w := r.do("POST", pathEmbeddings, sized(body))
	if _, _, _, code := errorObject(t, w.Body.Bytes()); w.Code != 503 || code != "server_is_overloaded" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, code)
	}
	if r.script.count() != 0 || r.held.Load() != others {
		t.Errorf("%d calls, %d bytes are held, others hold %d", r.script.count(), r.held.Load(), others)
	}
	r.held.Store(others - 1)
	if w := r.do("POST", pathEmbeddings, sized(body)); w.Code != 200 || r.held.Load() != others-1 {
		t.Errorf("%d, %d bytes are held, others hold %d", w.Code, r.held.Load(), others-1)
	}
}

func TestTheTextsOfEmbeddingsAreHeldBeforeTheyAreParsed(t *testing.T) {
	const body = 20 << 10
	r := embeds()
	r.held.Store(r.cfg.MaxBodyBytesTotal - 3*body)
	w := r.do("POST", pathEmbeddings, strings.Replace(sized(body), "model", "moxel", 1))
	if _, _, _, code := errorObject(t, w.Body.Bytes()); code != "server_is_overloaded" {
		t.Errorf("%d %s", w.Code, code)
	}
}

// holder notes what the handler holds when the response begins.
type holder struct {
	*httptest.ResponseRecorder
	r    *rig
	held int64
}

func (h *holder) WriteHeader(status int) {
	h.held = h.r.held.Load()
	h.ResponseRecorder.WriteHeader(status)
}

func TestEmbeddingsHoldWhatTheyMayNeedThenWhatTheyHave(t *testing.T) {
	const body, width = 1 << 10, 384
	var asked int64
	r := embeds()
	r.script.embed = func(context.Context, *Call) (*Embeddings, error) {
		asked = r.held.Load()
		return &Embeddings{Vectors: [][]float32{make([]float32, width)}}, nil
	}
	req := httptest.NewRequest("POST", pathEmbeddings, strings.NewReader(sized(body)))
	req.Header.Set("Content-Type", "application/json")
	w := &holder{ResponseRecorder: httptest.NewRecorder(), r: r}
	r.ServeHTTP(w, req)
	if want := int64(3*body + 1 + 64<<10); asked != want {
		t.Errorf("%d bytes are held for the call, want %d", asked, want)
	}
	if want := int64(3*body + 1 + 4*width); w.held != want {
		t.Errorf("%d bytes are held for the vectors, want %d", w.held, want)
	}
	if got := r.held.Load(); got != 0 {
		t.Errorf("%d bytes are held after the end", got)
	}
}

func TestVectorsThatAreLargerThanWasTakenAreHeldAsTheyAre(t *testing.T) {
	r := embeds(make([]float32, 32<<10)) // 128 KiB
	others := r.cfg.MaxBodyBytesTotal - 100<<10
	r.held.Store(others)
	w := r.do("POST", pathEmbeddings, sized(1<<10))
	if _, _, _, code := errorObject(t, w.Body.Bytes()); code != "server_is_overloaded" || r.script.count() != 1 || r.held.Load() != others {
		t.Errorf("%s after %d calls, %d bytes are held, others hold %d", code, r.script.count(), r.held.Load(), others)
	}
}

func TestWhatAnAnswerMayNeedGrowsWithItsInputsUpToABound(t *testing.T) {
	for inputs, want := range map[int]int64{1: 64 << 10, 100: 6400 << 10, 1024: 64 << 20, 2048: 64 << 20} {
		if got := answerBytes(inputs); got != want {
			t.Errorf("%d inputs: %d bytes, want %d", inputs, got, want)
		}
	}
	if got := MostHeld(8 << 20); got != 26<<20+64<<20 {
		t.Errorf("one request may hold %d bytes", got)
	}
}

func TestAClientThatGoesEndsItsEmbeddings(t *testing.T) {
	r := embeds()
	r.script.embed = func(ctx context.Context, _ *Call) (*Embeddings, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	url := r.serve(context.Background(), t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+pathEmbeddings, strings.NewReader(askEmbedding))
		if err != nil {
			done <- err
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	eventually(t, "the call", func() bool { return r.script.count() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	eventually(t, "the end of the call", func() bool { return r.figures.String() == "org/small-1.0 cancelled" })
}

func TestAClientThatStopsTakingEmbeddingsEndsThem(t *testing.T) {
	list := slices.Repeat([][]float32{make([]float32, 32<<10)}, 4) // 64 KiB of zeros each
	r := embeds(list...)
	req := httptest.NewRequest("POST", pathEmbeddings, strings.NewReader(askEmbedding))
	req.Header.Set("Content-Type", "application/json")
	w := &stuck{after: 1}
	aborted(t, func() { r.ServeHTTP(w, req) })
	if got := r.figures.String(); got != "org/small-1.0 cancelled" || w.writes.Load() != 2 {
		t.Errorf("counted as %q after %d writes", got, w.writes.Load())
	}
}

func TestEmbeddingsSpreadUnlessASessionKeepsThemTogether(t *testing.T) {
	key := func(session string, in ...wire.Input) string {
		return string(embeddingKey(session, &wire.EmbeddingRequest{Inputs: in}))
	}
	text, tokens := wire.Input{Text: "a"}, wire.Input{Tokens: []uint32{1, 2}}
	if key("", text) == key("", tokens) || key("", tokens) == key("", wire.Input{Tokens: []uint32{2, 1}}) || key("", text) != key("", text, tokens) {
		t.Error("keys of inputs")
	}
	if got := key("s", text); got != "session\x00s" {
		t.Errorf("got %q", got)
	}
}
