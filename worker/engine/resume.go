package engine

import "fmt"

// Resume is the beginning of an output that another engine of the same model has made. It counts as made, for MaxTokens,
// MinTokens, the penalties and Usage.Completion, and no chunk repeats anything of it.
type Resume struct {
	// Tokens are those of all chunks, in order.
	Tokens []Token
	// Text and Reasoning are those of the same chunks. Both are empty where all was given out that Tokens spell, and
	// where nothing was.
	Text, Reasoning string
}

// Made returns how many tokens of choice 0 were made elsewhere.
func (r *Request) Made() int {
	if r.Resume == nil {
		return 0
	}
	return len(r.Resume.Tokens)
}

// ResumeError returns an *InvalidError where what was made elsewhere does not go with the rest of r, or with a vocabulary
// and a context of so many tokens, of which 0 is unknown; else nil.
func (r *Request) ResumeError(vocab, context int) error {
	invalid := func(format string, args ...any) error {
		return &InvalidError{Field: "resume_tokens", Message: fmt.Sprintf(format, args...)}
	}
	made := r.Made()
	switch {
	case r.Resume == nil:
		return nil
	case r.Choices > 1:
		return invalid("n is %d; only an output of one choice can be gone on with", r.Choices)
	case r.Format != FormatText:
		return invalid("response_format is %s; an output that is held to a format can't be gone on with", r.Format)
	case r.MaxTokens > 0 && made > r.MaxTokens:
		return invalid("%d tokens are made already; max_tokens is %d", made, r.MaxTokens)
	case context > 0 && made >= context:
		return invalid("%d tokens are made already; the context holds %d, prompt included", made, context)
	}
	for i, t := range r.Resume.Tokens {
		if t < 0 || vocab > 0 && int(t) >= vocab {
			return invalid("token %d at index %d is outside the vocabulary of %d", t, i, vocab)
		}
	}
	return nil
}
