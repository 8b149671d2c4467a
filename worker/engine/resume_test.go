package engine

import (
	"errors"
	"testing"
)

func TestWhatWasMadeElsewhereHasToGoWithTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*Request)
		vocab, context int
		want           string // the refusal; "" means accepted
	}{
		"nothing was made":                              {func(r *Request) { r.Resume = nil; r.Choices = 3 }, 1, 1, ""},
		"three tokens":                                  {nil, 10, 100, ""},
		"unknown limits":                                {nil, 0, 0, ""},
		"as many tokens as may be made":                 {func(r *Request) { r.MaxTokens = 3 }, 10, 100, ""},
		"text without tokens":                           {func(r *Request) { r.Resume = &Resume{Text: "x"} }, 10, 100, ""},
		"more tokens than may be made":                  {func(r *Request) { r.MaxTokens = 2 }, 10, 100, "3 tokens are made already; max_tokens is 2"},
		"as many tokens as the context":                 {nil, 10, 3, "3 tokens are made already; the context holds 3, prompt included"},
		"two choices":                                   {func(r *Request) { r.Choices = 2 }, 10, 100, "n is 2; only an output of one choice can be gone on with"},
		"a format":                                      {func(r *Request) { r.Format = FormatJSONObject }, 10, 100, "response_format is json_object; an output that is held to a format can't be gone on with"},
		"a token that no vocabulary has":                {func(r *Request) { r.Resume.Tokens[1] = -1 }, 0, 0, "token -1 at index 1 is outside the vocabulary of 0"},
		"a token that this vocabulary is too small for": {nil, 9, 100, "token 9 at index 2 is outside the vocabulary of 9"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Request{Resume: &Resume{Tokens: []Token{7, 8, 9}}}
			if c.change != nil {
				c.change(r)
			}
			err := r.ResumeError(c.vocab, c.context)
			var invalid *InvalidError
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (!errors.As(err, &invalid) || invalid.Field != "resume_tokens" || invalid.Message != c.want):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
