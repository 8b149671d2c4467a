package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// run generates from a prompt and returns all that came.
func run(w *watched, r *engine.Request) (string, engine.Chunk, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	s, err := w.Generate(ctx, r)
	if err != nil {
		return "", engine.Chunk{}, err
	}
	defer s.Close() //nolint:errcheck // only cancels
	return all(s)
}

func TestAStreamOfTheServerBecomesOne(t *testing.T) {
	w := watchIt(t, newDouble(t, "vllm"))
	got, last, err := run(w, text("secret"))
	if err != nil || got != "Hello you" || last.Finish != engine.FinishStop || last.Usage != (engine.Usage{Prompt: 5, Completion: 3}) {
		t.Errorf("got %q, %+v, %v", got, last, err)
	}
	if i := w.Info(); i.Model != "m" || i.ContextTokens != 512 || i.Vocab != 100 || !i.Caps.Tools || i.Caps.Embeddings {
		t.Errorf("the model is described as %+v", i)
	}
}

func TestStreamsThatAreWrongAreErrorsWithoutTextOfTheRequest(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	event := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { words(w, "Hel"); say(w, s) }
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		part   string // of the error; empty: none
		is     error
	}{
		"garbage with 200":                    {answer: func(w http.ResponseWriter) { fmt.Fprint(w, "<html>secret</html>") }, part: "not of the protocol"},
		"an answer that is no stream":         {answer: func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json"); fmt.Fprint(w, `{}`) }, part: "not of the protocol"},
		"an event that is no JSON":            {answer: event("data: secret\n\n"), part: "not of the protocol"},
		"an event that is an error":           {answer: event(`data: {"error":{"message":"secret","type":"InternalServerError","code":500}}` + "\n\n"), part: "(500 InternalServerError)"},
		"a refusal after output":              {answer: event(`data: {"error":{"message":"secret","type":"BadRequestError","code":400}}` + "\n\n"), part: "(400 BadRequestError)"},
		"an error by the event's name":        {answer: event("event: error\ndata: {\"message\":\"secret\"}\n\n"), part: "with an error"},
		"an error event of a full queue":      {answer: event(`data: {"error":{"message":"secret","code":503}}` + "\n\n"), is: engine.ErrBusy},
		"an end without a reason":             {answer: event(""), part: "before the output did"},
		"an end by DONE without a reason":     {answer: event("data: [DONE]\n\n"), part: "before the output did"},
		"a reason that means failure":         {answer: event(`data: {"choices":[{"finish_reason":"abort"}]}` + "\n\n"), part: `"abort"`},
		"a process that exits":                {answer: func(w http.ResponseWriter) { words(w, "Hel"); cut(w) }, part: "EOF", is: engine.ErrLost},
		"an end without DONE and usage":       {answer: event(`data: {"choices":[{"finish_reason":"length"}]}` + "\n\n")},
		"an end in the middle of nothing":     {answer: func(w http.ResponseWriter) { speak(w, "Hel"); say(w, "data: {\"cho") }},
		"a cut connection after the reason":   {answer: func(w http.ResponseWriter) { event(`data: {"choices":[{"finish_reason":"stop"}]}` + "\n\n")(w); cut(w) }},
		"comments, CR LF and many data lines": {answer: event(": ping\r\n\r\ndata: {\"choices\":\r\ndata: [{\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n")},
	} {
		d.change(func(d *double) {
			d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { c.answer(w) }
		})
		got, _, err := run(w, text("secret"))
		switch {
		case c.part == "" && c.is == nil:
			if err != nil || got != "Hel" {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		case err == nil, c.is != nil && !errors.Is(err, c.is), !strings.Contains(err.Error(), c.part), strings.Contains(err.Error(), "secret"),
			errors.Is(err, engine.ErrLost) != errors.Is(c.is, engine.ErrLost):
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	wait(t, "all streams are closed", func() bool { return d.streams() == 0 && len(w.Stats().RequestIDs) == 0 })
}

func TestAnswersBecomeErrorsByTheirCode(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	for name, c := range map[string]struct {
		status int
		body   string
		want   engine.InvalidError // Message is a part
		is     error
		part   string
	}{
		"a prompt too long at vLLM": {status: 400, body: `{"error":{"message":"This model's maximum context length is 2048 tokens.","type":"BadRequestError","param":"input_tokens","code":400}}`,
			want: engine.InvalidError{Field: "prompt", Code: engine.CodeContextLength, Message: "2048"}},
		"a prompt too long at llama-server": {status: 400, body: `{"error":{"code":400,"message":"request (3 tokens) exceeds the available context size (2 tokens)","type":"exceed_context_size_error"}}`,
			want: engine.InvalidError{Field: "prompt", Code: engine.CodeContextLength, Message: "(3 tokens)"}},
		"a prompt too long at SGLang": {status: 400, body: `{"object":"error","message":"The input (9 tokens) is longer than the model's context length (8 tokens).","type":"BadRequestError","code":400}`,
			want: engine.InvalidError{Field: "prompt", Code: engine.CodeContextLength, Message: "(9 tokens)"}},
		"a parameter that is wrong":  {status: 400, body: `{"error":{"message":"no","param":"body.top_p","code":400}}`, want: engine.InvalidError{Field: "top_p", Message: "no"}},
		"FastAPI's own refusal":      {status: 422, body: `{"detail":[{"loc":["body"]}]}`, want: engine.InvalidError{Field: "prompt", Message: "loc"}},
		"a code in words":            {status: 400, body: `{"error":{"message":"no","code":"unsupported_parameter"}}`, want: engine.InvalidError{Field: "prompt", Code: "unsupported_parameter", Message: "no"}},
		"an error that is a string":  {status: 400, body: `{"error":"no"}`, want: engine.InvalidError{Field: "prompt", Message: "no"}},
		"a refusal without words":    {status: 400, body: "secret", want: engine.InvalidError{Field: "prompt", Message: "refuses it with 400"}},
		"what is not implemented":    {status: 501, body: `{"error":{"message":"no"}}`, want: engine.InvalidError{Field: "prompt", Message: "no"}},
		"a full queue":               {status: 429, body: "secret", is: engine.ErrBusy},
		"a server that still loads":  {status: 503, body: `{"error":{"message":"Loading model"}}`, is: engine.ErrBusy},
		"a server error":             {status: 500, body: `{"error":{"message":"secret","type":"InternalServerError"}}`, part: "the engine failed: it answered 500 (InternalServerError)"},
		"a server error in HTML":     {status: 502, body: "<html>secret", part: "the engine failed: it answered 502"},
		"a key that is refused":      {status: 401, body: "secret", part: "it answered 401"},
		"a model that is not there":  {status: 404, body: `{"error":{"message":"secret"}}`, part: "it answered 404"},
		"a redirect":                 {status: 302, body: "", part: "it answered 302"},
		"a kind that holds the text": {status: 500, body: `{"error":{"message":"x","type":"secret words"}}`, part: "it answered 500"},
	} {
		d.change(func(d *double) {
			d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}
		})
		_, _, err := run(w, text("secret"))
		invalid := (*engine.InvalidError)(nil)
		switch {
		case c.want.Field != "":
			if !errors.As(err, &invalid) || invalid.Field != c.want.Field || invalid.Code != c.want.Code || !strings.Contains(invalid.Message, c.want.Message) {
				t.Errorf("%s: the error is %#v", name, err)
			}
		case err == nil, errors.As(err, &invalid), errors.Is(err, engine.ErrLost), c.is != nil && !errors.Is(err, c.is), !strings.Contains(err.Error(), c.part), strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if n := d.times(completionPath); n != 17+1 {
		t.Errorf("17 requests and a probe came as %d: answers with a code are not tried again", n)
	}
}

func TestARefusalMayComeAsTheFirstEvent(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			say(w, `data: {"error":{"message":"Token id 99999 is out of vocabulary","type":"BadRequestError","param":null,"code":400}}`+"\n\n")
		}
	})
	_, _, err := run(w, text("a"))
	if invalid := (*engine.InvalidError)(nil); !errors.As(err, &invalid) || invalid.Field != "prompt" || !strings.Contains(invalid.Message, "99999") {
		t.Errorf("the error is %v", err)
	}
}

func TestAKeptConnectionThatWasClosedIsNoError(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	var cuts, tries atomic.Int32
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			tries.Add(1)
			if cuts.Add(-1) >= 0 {
				cut(w)
				return
			}
			speak(w, "fine")
		}
	})
	// kept runs a request of which so many tries are cut, on a connection that was kept: where the pool had none yet, it is
	// a new one that is cut, and that is an error at once.
	kept := func(n int32) (got string, err error) {
		for range 100 {
			if _, _, err := run(w, text("a")); err != nil { // leaves a connection behind
				t.Fatal(err)
			}
			cuts.Store(n)
			tries.Store(0)
			if got, _, err = run(w, text("a")); tries.Load() != 1 {
				break
			}
			cuts.Store(0)
		}
		return got, err
	}
	if got, err := kept(1); err != nil || got != "fine" || tries.Load() != 2 {
		t.Errorf("after %d tries the text is %q, the error %v", tries.Load(), got, err)
	}
	if _, err := kept(2); !errors.Is(err, engine.ErrLost) || tries.Load() != 2 {
		t.Errorf("after %d tries the error is %v", tries.Load(), err)
	}
}

func TestNothingIsTriedAgainOnceTheServerHasSpoken(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	if _, _, err := run(w, text("a")); err != nil {
		t.Fatal(err)
	}
	before := d.times(completionPath)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { words(w, "a"); cut(w) }
	})
	if _, _, err := run(w, text("a")); err == nil {
		t.Error("a cut stream has no error")
	}
	if n := d.times(completionPath) - before; n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}

func TestACancelClosesTheConnection(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	for name, generate := range map[string]func(http.ResponseWriter, *http.Request, map[string]any){
		"before an answer": func(_ http.ResponseWriter, r *http.Request, _ map[string]any) { d.hang(r) },
		"before a token":   func(w http.ResponseWriter, r *http.Request, _ map[string]any) { say(w, ": ping\n\n"); d.hang(r) },
		"after a token":    func(w http.ResponseWriter, r *http.Request, _ map[string]any) { words(w, "a"); d.hang(r) },
	} {
		d.change(func(d *double) { d.generate = generate })
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		r := text("a")
		r.Choices = 3
		go func() {
			s, err := w.Generate(ctx, r)
			if err == nil {
				_, _, err = all(s)
			}
			ended <- err
		}()
		wait(t, "three streams are open", func() bool { return d.streams() == 3 })
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("%s: it ended with %v", name, err)
		}
		wait(t, "the server sees it", func() bool { return d.streams() == 0 })
		if s := w.Stats(); s.Running != 0 || s.Waiting != 0 || len(s.RequestIDs) != 0 {
			t.Errorf("%s: after it the figures are %+v", name, s)
		}
	}
}

func TestOneChoiceThatFailsEndsTheOthers(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	var n atomic.Int32
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			if n.Add(1) == 2 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			d.hang(r)
		}
	})
	r := text("a")
	r.Choices = 3
	if _, _, err := run(w, r); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("the error is %v", err)
	}
	wait(t, "the others are closed", func() bool { return d.streams() == 0 })
}

func TestMoreThanTheBoundIsBusy(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d, func(o *Options) { o.MaxSequences, o.MaxWaiting = 1, 1 })
	d.neverEnd()
	for range 2 {
		s, err := w.Generate(context.Background(), text("a"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // only cancels
	}
	if _, err := w.Generate(context.Background(), text("a")); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("the third request gave %v", err)
	}
}

func TestAReaderThatDoesNotReadIsCancelled(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	piece := strings.Repeat("x", 64<<10)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			for r.Context().Err() == nil {
				words(w, piece)
			}
		}
	})
	s, err := w.Generate(context.Background(), text("a"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the stream is closed", func() bool { return d.streams() == 0 && len(w.Stats().RequestIDs) == 0 })
	if _, _, err := all(s); !errors.Is(err, engine.ErrSlowReader) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAPromptThatLeavesTooLittleRoomIsRefusedOnceItsLengthIsKnown(t *testing.T) {
	d := newDouble(t, "llamacpp")
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			say(w, `data: {"choices":[{"text":""}],"prompt_progress":{"total":510,"cache":0,"processed":64,"time_ms":1}}`+"\n\n")
			d.hang(r)
		}
	})
	_, _, err := run(w, text("a")) // of 8 tokens in a context of 512
	if invalid := (*engine.InvalidError)(nil); !errors.As(err, &invalid) || invalid.Code != engine.CodeContextLength || !strings.Contains(invalid.Message, "510") {
		t.Errorf("the error is %v", err)
	}
	wait(t, "the stream is closed", func() bool { return d.streams() == 0 })
}

func TestAnEndlessAnswerIsBounded(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.paths["/tokenize"] = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err != nil {
					return
				}
			}
		}
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			say(w, "data: ")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
		}
	})
	if _, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"}); err == nil || !strings.Contains(err.Error(), "32 MiB") {
		t.Errorf("an endless answer gave %v", err)
	}
	if _, _, err := run(w, text("a")); err == nil || !strings.Contains(err.Error(), "longer than any") {
		t.Errorf("an endless event gave %v", err)
	}
}
