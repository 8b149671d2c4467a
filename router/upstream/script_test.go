package upstream

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// script is an answer that a fake engine makes token by token. It resumes as the contract of resume_tokens says: it makes the
// tokens that it is given again, without sending anything, and goes on after them, or after the text that it is given where
// that is longer: what was held back behind the last token may have been sent.
type script struct {
	pieces []string // the bytes of each token; token i has the id 100+i
	thinks int      // so many of them are reasoning
	stop   []string
	most   uint32 // max_tokens

	uncounted bool // usage knows nothing of resumed tokens, and takes them for a part of the prompt
	byText    bool // it names no tokens, and goes on after a text
}

const promptTokens = 5

func (a *script) request() Request {
	r := request()
	r.Proto.MaxTokens, r.Proto.Stop, r.Resume = a.most, a.stop, true
	r.Place.MaxTokens = a.most
	return r
}

// held is text on its way: it keeps back an unfinished character and what may become a stop string.
type held struct {
	stop []string
	raw  string
	sent int
}

func (h *held) push(piece string) (out string, stopped bool) {
	h.raw += piece
	whole := len(h.raw)
	for cut := 1; cut <= min(3, len(h.raw)); cut++ {
		if at := len(h.raw) - cut; utf8.RuneStart(h.raw[at]) && !utf8.FullRuneInString(h.raw[at:]) {
			whole = at
		}
	}
	text := h.raw[h.sent:whole]
	for _, s := range h.stop {
		if before, _, found := strings.Cut(text, s); found {
			return before, true
		}
	}
	keep := 0
	for _, s := range h.stop {
		for n := range s {
			if strings.HasSuffix(text, s[:n]) {
				keep = max(keep, n)
			}
		}
	}
	out = text[:len(text)-keep]
	h.sent += len(out)
	return out, false
}

func (h *held) flush() string { return strings.ToValidUTF8(h.raw[h.sent:], "\ufffd") }

// ids are the ids of the first n tokens.
func ids(n int) []uint32 {
	var out []uint32
	for i := range n {
		out = append(out, uint32(100+i))
	}
	return out
}

// play answers r. Before each token and before the finish it calls next with the number of tokens that were made; an error of
// it ends the call.
func (a *script) play(r *workerv1.GenerateRequest, o out, next func(n int) error) error {
	done := len(r.GetResumeTokens())
	if a.byText {
		if done = a.after(r); done < 0 {
			return status.Errorf(codes.InvalidArgument, "resume_text is %q", r.GetResumeText())
		}
	} else if !slices.Equal(r.GetResumeTokens(), ids(done)) {
		return status.Errorf(codes.InvalidArgument, "resume_tokens are %v", r.GetResumeTokens())
	}
	accept := accepted()
	if a.uncounted {
		accept.GetAccepted().PromptTokens += uint32(done)
	}
	if err := o.Send(accept); err != nil {
		return err
	}
	h := held{stop: r.GetStop()}
	ahead := len(r.GetResumeText()) // so much of the text is not sent
	send := func(d *workerv1.GenerateResponse) error {
		x := d.GetDelta()
		n := min(ahead, len(x.Text))
		ahead, x.Text = ahead-n, x.Text[n:]
		return o.Send(d)
	}
	reason, made := workerv1.FinishReason_FINISH_REASON_STOP, 0
	most := int(r.GetMaxTokens())
	if a.byText { // it knows nothing of what was made
		most += done
	}
	for i, piece := range a.pieces {
		if r.GetMaxTokens() > 0 && i == most {
			reason = workerv1.FinishReason_FINISH_REASON_LENGTH
			break
		}
		text, stopped := "", false
		if i >= a.thinks {
			text, stopped = h.push(piece)
		}
		if made++; made <= done {
			ahead -= min(ahead, len(text))
		} else {
			if err := next(i); err != nil {
				return err
			}
			d := delta(text)
			if i < a.thinks {
				d.GetDelta().Reasoning = strings.ToValidUTF8(piece, "\ufffd")
			}
			if !a.byText {
				d.GetDelta().Tokens = []uint32{uint32(100 + i)}
			}
			if err := send(d); err != nil {
				return err
			}
		}
		if stopped {
			h.sent = len(h.raw)
			break
		}
	}
	if err := next(made); err != nil {
		return err
	}
	if rest := h.flush(); len(rest) > ahead {
		if err := send(delta(rest)); err != nil {
			return err
		}
	}
	usage := &workerv1.Usage{PromptTokens: promptTokens, CompletionTokens: uint32(made), CachedTokens: 2}
	if a.uncounted {
		usage.PromptTokens, usage.CompletionTokens, usage.CachedTokens = usage.PromptTokens+uint32(done), uint32(made-done), promptTokens+uint32(done)
	}
	end := finish()
	end.GetFinish().Reason, end.GetFinish().Usage = reason, usage
	return o.Send(end)
}

// after is how many tokens made the text that r goes on after.
func (a *script) after(r *workerv1.GenerateRequest) int {
	for n := range len(a.pieces) + 1 {
		thinks := min(n, a.thinks)
		if strings.Join(a.pieces[:thinks], "") == r.GetResumeReasoning() && strings.Join(a.pieces[thinks:n], "") == r.GetResumeText() {
			return n
		}
	}
	return -1
}

// whole answers to the end.
func (a *script) whole(r *workerv1.GenerateRequest, o out) error {
	return a.play(r, o, func(int) error { return nil })
}

// seen is what a client has got of an answer.
type seen struct {
	events []string // one for each piece
	text   string
	tokens []uint32
	finish string
}

// collect reads s to its end. It calls got after each piece with their number.
func collect(s *Stream, got func(n int)) (c seen, err error) {
	for {
		e, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return c, nil
		case errors.Is(err, ErrAgain):
			c = seen{}
			continue
		case err != nil:
			return c, err
		}
		if f := e.GetFinish(); f != nil {
			u := f.GetUsage()
			c.finish = fmt.Sprintf("%s, usage %d, %d, %d", f.GetReason(), u.GetPromptTokens(), u.GetCompletionTokens(), u.GetCachedTokens())
			continue
		}
		d := e.GetDelta()
		c.events = append(c.events, fmt.Sprintf("%d: %v %q %q", d.GetChoice(), d.GetTokens(), d.GetText(), d.GetReasoning()))
		c.text += d.GetText()
		c.tokens = append(c.tokens, d.GetTokens()...)
		if got != nil {
			got(len(c.events))
		}
	}
}

// undisturbed is the answer of a worker that lives.
func (a *script) undisturbed(t *testing.T) seen {
	t.Helper()
	f := newFleet(t, 1, a.whole)
	s, err := f.Generate(t.Context(), a.request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := collect(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
