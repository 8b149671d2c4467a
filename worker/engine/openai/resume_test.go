package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// resumed is a chat whose answer was begun elsewhere.
func resumed(made int, text, reasoning string) *engine.Request {
	has := &engine.Resume{Text: text, Reasoning: reasoning}
	for i := range made {
		has.Tokens = append(has.Tokens, engine.Token(i))
	}
	return &engine.Request{ID: "r", Prompt: engine.Prompt{Chat: &engine.Chat{Messages: []byte(`[{"role":"user","content":"Hi"}]`)}},
		MaxTokens: 8, Resume: has}
}

// readAll reads a stream to its end.
func readAll(t *testing.T, w *watched, r *engine.Request) (prompt int, got, thought string, last engine.Chunk) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	s, err := w.Generate(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it has ended
	prompt = s.PromptTokens()
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return prompt, got, thought, last
		}
		if err != nil {
			t.Fatal(err)
		}
		got, thought, last = got+c.Text, thought+c.Reasoning, c
	}
}

func TestAnAnswerThatWasBegunElsewhereGoesOnAndIsCountedAsOne(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	r := text("Once")
	r.Resume = &engine.Resume{Tokens: []engine.Token{1, 2, 3}, Text: " upon"}
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			speak(w, " a", fmt.Sprint(" ", body["prompt"]), fmt.Sprint(" ", body["max_tokens"]))
		}
	})
	prompt, got, _, last := readAll(t, w, r)
	if got != " a Once upon 5" || prompt != 2 || last.Finish != engine.FinishStop || last.Usage != (engine.Usage{Prompt: 2, Completion: 6}) {
		t.Errorf("behind a prompt of %d it is %q, %+v", prompt, got, last)
	}
}

func TestWhatTheReaderHasOfAnAnswerIsNotSaidAgainAndIsNoReasoning(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			for _, delta := range []string{`{"reasoning":"\n"}`, `{"reasoning":"\n\n- two"}`, `{"content":" three"}`} {
				say(w, `data: {"choices":[{"delta":`+delta+"}]}\n\n")
			}
			say(w, `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5}}`+"\n\n")
		}
	})
	_, got, thought, last := readAll(t, w, resumed(3, "One.\n\n", "why"))
	if got != "\n- two three" || thought != "" || last.Usage != (engine.Usage{Prompt: 6, Completion: 8}) {
		t.Errorf("it goes on with %q, thinks %q, %+v", got, thought, last.Usage)
	}
}

func TestAChatThatTheServerRendersGoesOnAsText(t *testing.T) {
	d := newDouble(t, "llamacpp")
	d.paths["/apply-template"] = func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		if fmt.Sprint(body["messages"]) != "[map[content:Hi role:user]]" {
			t.Errorf("it was asked to render %v", body)
		}
		fmt.Fprint(w, `{"prompt":"<user>Hi<answer>"}`)
	}
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
			speak(w, r.URL.Path, " ", fmt.Sprint(body["prompt"]))
		}
	})
	_, got, _, _ := readAll(t, w, resumed(3, "One. ", ""))
	if got != completionPath+" <user>Hi<answer>One. " {
		t.Errorf("it was put as %q", got)
	}
	if _, err := w.Generate(context.Background(), resumed(3, "One. ", "why")); !errors.Is(err, engine.ErrNoResume) {
		t.Errorf("an answer behind reasoning gave %v", err)
	}
}

func TestAnAnswerOfWhichAllIsMadeIsNotPutToTheServer(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths["/tokenize"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		fmt.Fprint(w, `{"count":2,"tokens":[7,8]}`)
	}
	w := watchIt(t, d)
	before := d.times(chatPath)
	prompt, got, _, last := readAll(t, w, resumed(8, "One.", ""))
	if got != "" || prompt != 2 || last.Finish != engine.FinishLength || last.Usage != (engine.Usage{Prompt: 2, Completion: 8}) {
		t.Errorf("behind a prompt of %d it is %q, %+v", prompt, got, last)
	}
	if n := d.times(chatPath) - before; n != 0 {
		t.Errorf("it was put to the server %d times", n)
	}
}

func TestAServerThatNobodyKnowsIsNotAskedToGoOn(t *testing.T) {
	d := newDouble(t, "somebody")
	w := watchIt(t, d)
	if w.Info().Caps.Resumes {
		t.Error("it is said to be able to")
	}
	if _, err := w.Generate(context.Background(), resumed(3, "One.", "")); !errors.Is(err, engine.ErrNoResume) {
		t.Errorf("got %v", err)
	}
}
