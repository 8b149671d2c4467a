package worker

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// texts are what is sent in pieces: characters of one to four bytes, and what looks like the protocol.
var texts = []string{"Grüße", " an 🙂", " 日本", "\n\ndata: [DONE]\n", " e\u0301 "}

// spelled are the events of an answer with the texts, in a form of the protocol.
func spelled(form string) []byte {
	var b bytes.Buffer
	end := "\n"
	if form == "CR LF" {
		end = "\r\n"
	}
	for i, t := range texts {
		first, second := fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%s},`, quoted(t)), fmt.Sprintf(`"finish_reason":null,"token_ids":[%d]}]}`, i)
		switch form {
		case "comments":
			b.WriteString(": a comment" + end + "event: message" + end + "id: 7" + end + "data: " + first + second + end + ": one more" + end + end)
		case "lines":
			b.WriteString("data: " + first + end + "data:" + second + end + end)
		default:
			b.WriteString("data: " + first + second + end + end)
		}
	}
	b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}` + end + end)
	b.WriteString("data: [DONE]" + end + end)
	return b.Bytes()
}

// quoted is a text as JSON has it, with its characters as they are.
func quoted(s string) string {
	r := strings.NewReplacer("\n", `\n`, "\r", `\r`, `"`, `\"`)
	return `"` + r.Replace(s) + `"`
}

// split is F14.
func split() []trial.Trial {
	return []trial.Trial{{ID: "F14", Says: "an engine's stream cut in two at each of its bytes, with CR LF, comments and data of many lines", Times: 20, Takes: 10 * time.Second,
		Spec: rig.Spec{Workers: 1},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			want := strings.Join(texts, "")
			step := 1
			if times == 1 {
				step = 7
			}
			n, wrong, replaced := 0, 0, 0
			take := func(text string) {
				n++
				if text != want {
					wrong++
				}
				replaced += strings.Count(text, string(utf8.RuneError))
			}
			for _, form := range []string{"plain", "CR LF", "comments", "lines"} {
				all := spelled(form)
				for at := 1; at < len(all); at += step {
					p := engine.Plan{Raw: [][]byte{all[:at], all[at:]}, Gap: time.Millisecond}
					if err := r.Workers[0].Engine.Set(ctx, p); err != nil {
						return nil, err
					}
					a := r.Routers[0].Client.Do(ctx, client.Request{Model: rig.ModelName, Words: 16, Free: true, Stream: true, Prompt: "Number " + client.NewID()})
					take(a.Text(0))
				}
			}
			if err := runes(ctx, r, want, take); err != nil {
				return nil, err
			}
			return []bench.Figure{
				bench.Plain("F14 streams that were cut in two", float64(n), ""),
				bench.AtMost("F14 of them not equal to the whole", float64(wrong), "", 0),
				bench.AtMost("F14 characters that became U+FFFD", float64(replaced), "", 0),
			}, nil
		}}}
}

// runes lets a worker that speaks the contract send the text cut in two at each character.
func runes(ctx context.Context, r *rig.Rig, want string, take func(string)) error {
	m := rig.NewModel("cut")
	l := newLiar(r, m, "cuts", "")
	at := 0
	l.answer = func(_ *workerv1.GenerateRequest, s stream) error {
		for _, err := range []error{accept(s, "cuts-1"), delta(s, want[:at], 1), delta(s, want[at:], 2), finish(s, 2)} {
			if err != nil {
				return err
			}
		}
		return nil
	}
	stop, err := l.start()
	if err != nil {
		return err
	}
	defer stop()
	if err := r.Tell(ctx, with(r.State(r.Workers...), m, l.candidate())); err != nil {
		return err
	}
	if err := r.Routers[0].Await(ctx, l.pod, true); err != nil {
		return err
	}
	for i := range want {
		at = i
		a := r.Routers[0].Client.Do(ctx, client.Request{Model: m.Name, Words: 16, Free: true, Stream: true, Prompt: "Number " + client.NewID()})
		take(a.Text(0))
	}
	return nil
}
