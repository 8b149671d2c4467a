package upstream

import (
	"fmt"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// kept is all that was handed out of an answer with one choice. Its memory is that of its client; drop gives it back.
type kept struct {
	tokens          []uint32 // all, or none
	pieces          int      // that show something
	text, reasoning []byte
	called          bool // a call of a tool has begun
	memory          *memory
	bytes           int64  // of it
	gone            string // why it is forgotten; "" while it is not
}

// Why an answer is forgotten.
var (
	tooLong = fmt.Sprintf("it has more than %d KiB", maxKept>>10)
	crowded = "the router keeps as much of other answers as it may"
)

// add takes a piece that is handed out.
func (k *kept) add(d *workerv1.Delta) {
	if k.gone != "" {
		return
	}
	k.called = k.called || len(d.GetToolCalls()) > 0
	if k.pieces == 0 || len(k.tokens) > 0 { // else some were not named, and those that are named now are not all
		k.tokens = append(k.tokens, d.GetTokens()...)
	}
	if visible(d) {
		k.pieces++
	}
	k.text = append(k.text, d.GetText()...)
	k.reasoning = append(k.reasoning, d.GetReasoning()...)
	if 4*len(k.tokens)+len(k.text)+len(k.reasoning) > maxKept {
		k.forget(tooLong)
		return
	}
	size := int64(4*cap(k.tokens) + cap(k.text) + cap(k.reasoning))
	switch {
	case size == k.bytes: // nearly always
	case k.memory.take(size-k.bytes, size):
		k.bytes = size
	default:
		k.forget(crowded)
	}
}

// forget makes k nothing, and drop ready for an answer that begins again.
func (k *kept) forget(why string) {
	k.drop()
	k.gone = why
}

func (k *kept) drop() {
	k.memory.give(k.bytes)
	*k = kept{memory: k.memory}
}

// made is how many tokens that is: those that were named or, of an engine that names none, about as many as there were pieces.
func (k *kept) made() int { return counted(len(k.tokens), k.pieces) }

// counted is how many tokens there are, of which so many were named, in so many pieces.
func counted(tokens, pieces int) int {
	if tokens == 0 {
		return pieces
	}
	return tokens
}

// put makes r go on after k. A worker takes what is named off the tokens that it may make; what is not, it must be told.
func (k *kept) put(r *workerv1.GenerateRequest) {
	r.ResumeTokens, r.ResumeText, r.ResumeReasoning = k.tokens, string(k.text), string(k.reasoning)
	if len(k.tokens) > 0 {
		return
	}
	made := uint32(k.pieces)
	r.MinTokens -= min(r.MinTokens, made)
	if r.MaxTokens > 0 {
		r.MaxTokens = max(r.MaxTokens, made+1) - made // 0 would be without limit
	}
}

// bound says why no answer to r can go on at another worker, whatever comes of it; "" if it may. Choices would have to go on
// together, and the state of a grammar is not in the tokens for every engine. Log probabilities come with their tokens, also
// with those whose text is still held back: an engine that goes on after a text makes these again, and their log
// probabilities would be told twice.
func bound(r *workerv1.GenerateRequest) string {
	switch {
	case r.GetChoices() > 1:
		return "it has several choices"
	case r.GetResponseFormat() != workerv1.ResponseFormat_RESPONSE_FORMAT_UNSPECIFIED:
		return "its format is constrained"
	case r.GetLogprobs():
		return "log probabilities were asked for"
	}
	return ""
}

// obstacle says why an answer of which k was handed out can't go on at another worker; "" if it may. What was parsed of a call
// of a tool can be made again from tokens, but a text does not say that there is one.
func (k *kept) obstacle() string {
	switch {
	case k.gone != "":
		return k.gone
	case k.called && len(k.tokens) == 0:
		return "a call of a tool has begun"
	}
	return ""
}

// joined is the usage of an answer that several workers made: u is what the last one says, prompt the length of the prompt
// as the first one counted it, 0 where it did not, made how many tokens the others made, whether they were named, and how many
// own this one sent. Engines that go on after an answer as if it were part of the prompt may count it there, and those that go
// on after its text count that anew. One that was told no tokens has the text in its prompt, and counts what it made itself.
func joined(u *workerv1.Usage, prompt uint32, made int, named bool, own int) *workerv1.Usage {
	out := &workerv1.Usage{PromptTokens: u.GetPromptTokens(), CompletionTokens: u.GetCompletionTokens(), CachedTokens: u.GetCachedTokens()}
	switch {
	case prompt > 0:
		out.PromptTokens = prompt
	case !named:
		out.PromptTokens -= min(out.PromptTokens, uint32(made))
	}
	out.CachedTokens = min(out.CachedTokens, out.PromptTokens)
	if !named {
		out.CompletionTokens = uint32(made) + max(out.CompletionTokens, uint32(own))
		return out
	}
	if all := uint32(made + own); out.CompletionTokens < all {
		if out.CompletionTokens <= uint32(own)+1 { // its own, and the one that ends the turn
			out.CompletionTokens += uint32(made)
		}
		out.CompletionTokens = max(out.CompletionTokens, all)
	}
	return out
}
