package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// choice is what a client makes of an answer, streamed or not.
type choice struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Calls     []call `json:"tool_calls"`
	finish    string
}

type call struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// joined reads a stream as a client does.
func joined(events string) (c choice, err error) {
	events, done := strings.CutSuffix(events, "data: [DONE]\n\n")
	if !done {
		return c, fmt.Errorf("no [DONE] at the end of %q", events)
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(events, "\n\n"), "\n\n") {
		var chunk struct {
			Choices []struct {
				Delta  choice
				Finish string `json:"finish_reason"`
			}
		}
		data, found := strings.CutPrefix(event, "data: ")
		if !found || strings.ContainsAny(data, "\r\n") {
			return c, fmt.Errorf("no event: %q", event)
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return c, fmt.Errorf("%q: %w", event, err)
		}
		for _, piece := range chunk.Choices {
			c.Content += piece.Delta.Content
			c.Reasoning += piece.Delta.Reasoning
			c.finish += piece.Finish
			for _, t := range piece.Delta.Calls {
				if t.ID != "" {
					c.Calls = append(c.Calls, call{Index: t.Index, ID: t.ID})
				}
				if t.Index >= len(c.Calls) {
					return c, fmt.Errorf("call %d has no beginning: %q", t.Index, event)
				}
				c.Calls[t.Index].Function.Name += t.Function.Name
				c.Calls[t.Index].Function.Arguments += t.Function.Arguments
			}
		}
	}
	return c, nil
}

// whole reads an answer that is not streamed.
func whole(body string) (choice, error) {
	var answer struct {
		Choices []struct {
			Message choice
			Finish  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Choices) != 1 {
		return choice{}, fmt.Errorf("%q: %w", body, err)
	}
	c := answer.Choices[0].Message
	c.finish = answer.Choices[0].Finish
	for i := range c.Calls {
		c.Calls[i].Index = i
	}
	return c, nil
}

// of is what a client has to make of m.
func of(m meant) choice {
	c := choice{Content: m.text, Reasoning: m.thought, finish: "stop"}
	for i, t := range m.calls {
		x := call{Index: i, ID: callID(i)}
		x.Function.Name, x.Function.Arguments = t.name, t.arguments
		c.Calls, c.finish = append(c.Calls, x), "tool_calls"
	}
	return c
}

// FuzzSSERelay: whatever form a server's stream has and however its bytes come, the client gets the same events, and they say
// what the server meant; and so does an answer that is not streamed.
func FuzzSSERelay(f *testing.F) {
	l := newLine(f)
	f.Fuzz(func(t *testing.T, thought, text, arguments string, writes uint16, pieces, cuts []byte) {
		if len(thought)+len(text)+len(arguments) > 4<<10 || len(cuts) > 64 {
			return
		}
		m := meant{thought: strings.ToValidUTF8(thought, ""), text: strings.ToValidUTF8(text, "")}
		if arguments != "" {
			arguments = strings.ToValidUTF8(arguments, "")
			m.calls = []called{{"first", arguments}, {"second", "{}"}}
		}
		stream := write(m, form(writes), pieces)
		status, once := l.ask(t, play{stream: stream}, true)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, once)
		}
		got, err := joined(once)
		if err != nil {
			t.Fatal(err)
		}
		if want := of(m); !reflect.DeepEqual(got, want) {
			t.Fatalf("the client gets\n%+v, not\n%+v, of\n%q", got, want, stream)
		}
		if _, again := l.ask(t, play{stream: stream, cuts: cuts}, true); again != once {
			t.Fatalf("in pieces it is\n%s\nand at once\n%s", again, once)
		}
		_, body := l.ask(t, play{stream: stream, cuts: cuts}, false)
		if got, err = whole(body); err != nil || !reflect.DeepEqual(got, of(m)) {
			t.Fatalf("not streamed it is\n%+v (%v), not\n%+v", got, err, of(m))
		}
	})
}
