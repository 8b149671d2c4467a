package upstream

import (
	"fmt"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// maxKept is how many bytes of an answer are kept so that it can go on at another worker, 4 for a token. Longer ones don't.
const maxKept = 1 << 20

// kept is all that was handed out of an answer with one choice.
type kept struct {
	tokens          []uint32
	text, reasoning []byte
	called          bool // a call of a tool has begun
	full            bool // it was more than maxKept, and is forgotten
}

// add takes a piece that is handed out.
func (k *kept) add(d *workerv1.Delta) {
	if k.full {
		return
	}
	k.called = k.called || len(d.GetToolCalls()) > 0
	k.tokens = append(k.tokens, d.GetTokens()...)
	k.text = append(k.text, d.GetText()...)
	k.reasoning = append(k.reasoning, d.GetReasoning()...)
	if 4*len(k.tokens)+len(k.text)+len(k.reasoning) > maxKept {
		*k = kept{full: true}
	}
}

// put makes r go on after k.
func (k *kept) put(r *workerv1.GenerateRequest) {
	r.ResumeTokens, r.ResumeText, r.ResumeReasoning = k.tokens, string(k.text), string(k.reasoning)
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
	case k.full:
		return fmt.Sprintf("it has more than %d KiB", maxKept>>10)
	case k.called && len(k.tokens) == 0:
		return "a call of a tool has begun"
	}
	return ""
}

// joined is the usage of an answer that several workers made: u is what the last one says, prompt the length of the prompt
// as the first one counted it, 0 where it did not, made how many tokens the others made, and own how many this one sent.
// Engines that go on after an answer as if it were part of the prompt may count it there, and those that go on after its text
// count that anew.
func joined(u *workerv1.Usage, prompt uint32, made, own int) *workerv1.Usage {
	out := &workerv1.Usage{PromptTokens: u.GetPromptTokens(), CompletionTokens: u.GetCompletionTokens(), CachedTokens: u.GetCachedTokens()}
	if prompt > 0 {
		out.PromptTokens = prompt
		out.CachedTokens = min(out.CachedTokens, prompt)
	}
	if all := uint32(made + own); out.CompletionTokens < all {
		if out.CompletionTokens <= uint32(own)+1 { // its own, and the one that ends the turn
			out.CompletionTokens += uint32(made)
		}
		out.CompletionTokens = max(out.CompletionTokens, all)
	}
	return out
}
