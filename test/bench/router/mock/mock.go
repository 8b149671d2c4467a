// Package mock holds the workers that routers are measured in front of: one that speaks OpenAI's HTTP, and one that speaks
// Ringfleet's gRPC. Both answer alike and compute nothing, so that what is measured is the router.
package mock

import (
	"fmt"
	"strings"
	"time"
)

// Model is what they serve.
const Model = "bench"

// Plan is how a worker answers.
type Plan struct {
	// Tokens is how many a stream has; Interval the time from one to the next. After the first one a stream is silent for
	// Silence.
	Tokens   int           `json:"tokens"`
	Interval time.Duration `json:"interval"`
	Silence  time.Duration `json:"silence"`
}

// Text is the answer that is not streamed: with what is around it, about a kibibyte.
var Text = strings.Repeat("All that is measured here is the way. ", 21)

// Piece is a streamed token's text.
const Piece = "token "

// whole is the answer of the worker that speaks HTTP.
func whole() []byte {
	return fmt.Appendf(nil, `{"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion","created":1700000000,"model":%q,"choices":[{"index":0,`+
		`"message":{"role":"assistant","content":%q,"refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":32,"completion_tokens":64,"total_tokens":96}}`, Model, Text)
}

// event is a token as the worker that speaks HTTP sends it; the last one ends the choice.
func event(last bool) []byte {
	delta, finish := fmt.Sprintf(`{"content":%q}`, Piece), "null"
	if last {
		delta, finish = "{}", `"stop"`
	}
	return fmt.Appendf(nil, `data: {"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion.chunk","created":1700000000,"model":%q,`+
		`"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}`+"\n\n", Model, delta, finish)
}

// beat calls each for the tokens of a stream at their times, and ends early when stopped ends or each says false. It
// reports whether the stream came to its end.
func (p Plan) beat(stopped <-chan struct{}, each func(i int) bool) bool {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range p.Tokens {
		at := time.Duration(i) * p.Interval
		if i > 0 {
			at += p.Silence
		}
		timer.Reset(time.Until(began.Add(at)))
		select {
		case <-timer.C:
		case <-stopped:
			return false
		}
		if !each(i) {
			return false
		}
	}
	return true
}
