package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// asked is what is read of a chat.
type asked struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	MaxTokens int  `json:"max_tokens"`
	Stream    bool `json:"stream"`
	Continue  bool `json:"continue_final_message"`
}

// Mark begins the id of a request in its prompt; a space ends it.
const Mark = "request="

// id is that of the client's request, by its prompt.
func (a *asked) id() string {
	for _, m := range a.Messages {
		if _, rest, ok := strings.Cut(m.Content, Mark); ok {
			id, _, _ := strings.Cut(rest, " ")
			return id
		}
	}
	return ""
}

// holds reports whether a prompt has s in it.
func (a *asked) holds(s string) bool {
	for _, m := range a.Messages {
		if strings.Contains(m.Content, s) {
			return true
		}
	}
	return false
}

// from is the word that the answer goes on with: the number of those that the last message has, where that is to be continued.
func (a *asked) from() int {
	if n := len(a.Messages); a.Continue && n > 0 && a.Messages[n-1].Role == "assistant" {
		return len(strings.Fields(a.Messages[n-1].Content))
	}
	return 0
}

// most is the longest body of a request.
const most = 32 << 20

// chat answers one chat.
func (e *Engine) chat(w http.ResponseWriter, r *http.Request) {
	var q asked
	if err := json.NewDecoder(io.LimitReader(r.Body, most)).Decode(&q); err != nil {
		http.Error(w, `{"error":{"message":"it is no JSON"}}`, http.StatusBadRequest)
		return
	}
	p, _ := e.current()
	if !q.Stream { // the worker finds out whether chats with tools are known here
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"w0"},"finish_reason":"length"}]}`)
		return
	}
	a := history.Attempt{ID: q.id(), Pod: e.pod, Start: time.Now(), From: q.from()}
	number := e.begin(a)
	defer func() {
		a.End, a.Aborted = time.Now(), r.Context().Err() != nil
		e.end(number, a)
	}()
	if p.Poison != "" && q.holds(p.Poison) {
		for _, pid := range p.Victims {
			e.kill(pid)
		}
		e.die()
		return
	}
	s := &script{engine: e, w: w, rc: http.NewResponseController(w), gone: r.Context().Done(), attempt: &a, last: a.From + q.MaxTokens}
	s.run(p)
}

// script is an answer on its way.
type script struct {
	engine  *Engine
	w       http.ResponseWriter
	rc      *http.ResponseController
	gone    <-chan struct{}
	attempt *history.Attempt
	last    int // how many words the answer has, with those that another engine made
}

// run answers as p says, and as what follows p says.
func (s *script) run(p Plan) {
	if !s.wait(func(p Plan) time.Duration { return p.First }) {
		return
	}
	p, _ = s.engine.current()
	if p.Status != 0 {
		http.Error(s.w, `{"error":{"message":"it can't","type":"server_error"}}`, p.Status)
		return
	}
	s.w.Header().Set("Content-Type", "text/event-stream")
	if p.Raw != nil {
		s.raw(p)
		return
	}
	for n := s.attempt.From; n < s.last; n++ {
		if n > s.attempt.From && !s.wait(func(p Plan) time.Duration { return p.Between }) {
			return
		}
		p, _ = s.engine.current()
		if !s.send(s.event(p, n)) {
			return
		}
		if s.attempt.Sent++; p.DieAfter > 0 && s.attempt.Sent >= p.DieAfter {
			s.engine.die()
			return
		}
		if p.RawSize > 0 {
			s.endless(p.RawSize)
			return
		}
	}
	s.send(s.finish())
}

// wait waits for a time that the plan of the moment gives, again where the plan changes, and as long as it is frozen. It
// returns false when the caller has gone.
func (s *script) wait(of func(Plan) time.Duration) bool {
	began := time.Now()
	for {
		p, changed := s.engine.current()
		left := p.slowed(of(p)) - time.Since(began)
		if left <= 0 && !p.Frozen {
			select {
			case <-s.gone:
				return false
			default:
				return true
			}
		}
		if p.Frozen {
			left = time.Hour // until the plan changes
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-s.gone:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// event is one word as vLLM sends it.
func (s *script) event(p Plan, n int) []byte {
	return fmt.Appendf(nil, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":%q,`+
		`"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null,"token_ids":[%d]}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\n", Model, history.Word(p.tag(), n), n, prompt+s.attempt.From, n-s.attempt.From+1)
}

// prompt is how many tokens a prompt has, as it says.
const prompt = 32

// finish ends an answer.
func (s *script) finish() []byte {
	return fmt.Appendf(nil, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":%q,`+
		`"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n",
		Model, prompt+s.attempt.From, s.attempt.Sent)
}

func (s *script) send(b []byte) bool {
	_, err := s.w.Write(b)
	return err == nil && s.rc.Flush() == nil
}

// raw sends what the plan says.
func (s *script) raw(p Plan) {
	for i, piece := range p.Raw {
		if i > 0 && p.Gap > 0 {
			timer := time.NewTimer(p.Gap)
			select {
			case <-timer.C:
			case <-s.gone:
				timer.Stop()
				return
			}
		}
		if !s.send(piece) {
			return
		}
	}
}

// endless sends a line of n bytes that does not end, and then waits until the caller goes.
func (s *script) endless(n int) {
	piece := []byte(strings.Repeat("x", 64<<10))
	if !s.send([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"")) {
		return
	}
	for ; n > 0; n -= len(piece) {
		if !s.send(piece[:min(n, len(piece))]) {
			return
		}
	}
	<-s.gone
}
