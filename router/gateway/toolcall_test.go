package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
)

// toolCall is a call as clients have it.
type toolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// said is what one choice says.
type said struct {
	Content string     `json:"content"`
	Calls   []toolCall `json:"tool_calls"`
}

// teller makes the events of a worker, and remembers what they say.
type teller struct {
	steps []step
	said  []said
	names string
}

// begin begins a call of a choice.
func (w *teller) begin(choice int, arguments string) openai.ToolCall {
	c := &w.said[choice]
	call := toolCall{Index: len(c.Calls), ID: fmt.Sprint("call-", choice, len(c.Calls), w.names)}
	call.Function.Name, call.Function.Arguments = fmt.Sprint("f", len(c.Calls), w.names), arguments
	c.Calls = append(c.Calls, call)
	return openai.ToolCall{Index: uint32(call.Index), ID: call.ID, Name: call.Function.Name, Arguments: arguments}
}

// more goes on with a call.
func (w *teller) more(choice, index int, arguments string) openai.ToolCall {
	w.said[choice].Calls[index].Function.Arguments += arguments
	return openai.ToolCall{Index: uint32(index), Arguments: arguments}
}

// tell adds an event by what op says: to begin a call, to go on with one, to go on with two at once, or text.
func (w *teller) tell(op byte, piece string) {
	choice := int(op) % len(w.said)
	d := openai.Delta{Choice: uint32(choice)}
	begun := len(w.said[choice].Calls)
	switch what := op >> 2 & 3; {
	case what == 3:
		d.Text = piece
		w.said[choice].Content += piece
	case what == 0 && begun < 16 || begun == 0:
		d.ToolCalls = append(d.ToolCalls, w.begin(choice, piece))
	case what == 1:
		d.ToolCalls = append(d.ToolCalls, w.more(choice, int(op>>4)%begun, piece))
	default:
		d.ToolCalls = append(d.ToolCalls, w.more(choice, 0, piece), w.more(choice, begun-1, piece))
	}
	w.steps = append(w.steps, step{event: Event{Delta: d, Tokens: 1}})
}

// merged joins the calls of a stream as clients do: by their index.
func merged(wire []byte, choices int) ([]said, error) {
	out := make([]said, choices)
	for event := range bytes.SplitSeq(bytes.TrimSuffix(wire, []byte("data: [DONE]\n\n")), []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		var chunk struct {
			Choices []struct {
				Index int
				Delta said
			}
		}
		if err := json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &chunk); err != nil {
			return nil, fmt.Errorf("%q: %w", event, err)
		}
		for _, piece := range chunk.Choices {
			c := &out[piece.Index]
			c.Content += piece.Delta.Content
			for _, t := range piece.Delta.Calls {
				if t.Index == len(c.Calls) {
					c.Calls = append(c.Calls, t)
					continue
				}
				if t.Index > len(c.Calls) || t.ID != "" || t.Function.Name != "" {
					return nil, fmt.Errorf("no piece of a call that has begun: %q", event)
				}
				c.Calls[t.Index].Function.Arguments += t.Function.Arguments
			}
		}
	}
	return out, nil
}

// FuzzToolCallMerge: in whatever pieces and order a worker tells its calls, a client that joins the pieces of a stream has the
// calls of the answer that is not streamed, and both are what the worker told.
func FuzzToolCallMerge(f *testing.F) {
	f.Fuzz(func(t *testing.T, names, arguments string, script []byte) {
		if len(script) > 64 || len(names)+len(arguments) > 1<<10 {
			return
		}
		const choices = 2
		w := &teller{said: make([]said, choices), names: strings.ToValidUTF8(names, "")}
		rest := strings.ToValidUTF8(arguments, "")
		for _, op := range script {
			n := min(int(op>>5), len(rest))
			for n < len(rest) && !utf8.RuneStart(rest[n]) {
				n++
			}
			w.tell(op, rest[:n])
			rest = rest[n:]
		}
		p := play{steps: append([]step{accepted}, w.steps...)}
		for c := range choices {
			p.steps = append(p.steps, step{event: Event{Delta: openai.Delta{Choice: uint32(c)}, Finish: openai.FinishToolCalls}})
		}
		r := newRig(clock.RealClock{}, p, p)
		body := r.do("POST", pathChat, `{"n":2,`+ask[1:]).Body.Bytes()
		var whole struct {
			Choices []struct{ Message said }
		}
		if err := json.Unmarshal(body, &whole); err != nil || len(whole.Choices) != choices {
			t.Fatalf("%s: %v\n%s", body, err, r.logged)
		}
		wire := r.do("POST", pathChat, `{"n":2,`+askStream[1:]).Body.Bytes()
		streamed, err := merged(wire, choices)
		if err != nil {
			t.Fatal(err)
		}
		for c := range choices {
			once := whole.Choices[c].Message
			for i := range once.Calls {
				once.Calls[i].Index = i
			}
			if want := w.said[c]; !reflect.DeepEqual(once, want) || !reflect.DeepEqual(streamed[c], want) {
				t.Fatalf("choice %d is told as\n%+v\nstreamed\n%+v\nat once\n%+v", c, want, streamed[c], once)
			}
		}
	})
}
