package enginetest

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// cuts is at how many places an output is cut, and doubt how much less probable, as a logarithm, the second best token has to
// be for the best one to be the same in every batch shape.
const (
	cuts  = 6
	doubt = 0.5
)

// resumes: an output that is cut anywhere goes on to the end that it has in one piece, with no byte doubled or missing.
func (r *rig) resumes() {
	q := r.request(r.text(), 32, func(q *engine.Request) {
		if r.h.Exact {
			q.Logprobs, q.TopLogprobs = true, 2
		}
	})
	whole, parts := r.parts(q)
	if !r.e.Info().Caps.Resumes {
		q.Resume = parts[len(parts)/2]
		if _, err := r.try(q); !errors.Is(err, engine.ErrNoResume) {
			r.Errorf("what is not claimed gave %v", err)
		}
		r.no("not claimed")
		return
	}
	if r.h.Wide == "" {
		r.Fatal("the harness has no text that goes on with wide characters")
	}
	r.rejoins("text", q, whole, whole, parts)
	chat, wide, stopped := *q, *q, *q
	chat.Prompt, wide.Prompt = r.chat(), engine.Prompt{Text: r.h.Wide}
	chatty, said := r.parts(&chat)
	r.rejoins("chat", &chat, chatty, chatty, said)
	open, drawn := r.parts(&wide)
	if utf8.RuneCountInString(open.text) == len(open.text) {
		r.Fatalf("there is no wide character in %q", open.text)
	}
	r.rejoins("wide characters", &wide, open, open, drawn)
	stop := middle(whole.text)
	if stop == "" {
		r.Fatalf("there is too little text for a stop string: %q", whole.text)
	}
	stopped.Stop = []string{"never in any text", stop}
	short, spoken := r.parts(&stopped)
	r.rejoins("stop strings", &stopped, short, whole, spoken)
	r.refusesResumes(parts[len(parts)/2])
	r.quiet()
}

// parts runs a request and returns, beside its output, what its reader has after each chunk.
func (r *rig) parts(q *engine.Request) (choice, []*engine.Resume) {
	r.Helper()
	s, err := r.e.Generate(r.within(), q)
	if err != nil {
		r.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it has ended
	var parts []*engine.Resume
	now := engine.Resume{}
	out, err := gather(s, 1, func(c engine.Chunk) {
		now.Text, now.Reasoning, now.Tokens = now.Text+c.Text, now.Reasoning+c.Reasoning, append(now.Tokens, c.Tokens...)
		if c.Text+c.Reasoning != "" {
			kept := now
			kept.Tokens = slices.Clone(now.Tokens)
			parts = append(parts, &kept)
		}
	})
	if err != nil {
		r.Fatal(err)
	}
	if len(parts) < 2 {
		r.Fatalf("an output of %d tokens came in %d pieces", out.choices[0].usage.Completion, len(parts))
	}
	return out.choices[0], parts
}

// sure is how many bytes of a greedy text come in every batch shape where the first tokens are given: those before the first
// other token that is in doubt.
func (c *choice) sure(given int) int {
	n := 0
	for i, l := range c.logprobs {
		if i >= given && len(l.Top) > 1 && l.Top[0].Logprob-l.Top[1].Logprob < doubt {
			return n
		}
		n += len(l.Bytes)
	}
	return len(c.text)
}

// rejoins cuts an output in several places, the last being behind all of it, and holds what it becomes to the whole. unstopped
// is what the whole one is without stop strings.
func (r *rig) rejoins(name string, q *engine.Request, whole, unstopped choice, parts []*engine.Resume) {
	r.Helper()
	other := 0
	for i := range cuts {
		part := parts[i*(len(parts)-1)/(cuts-1)]
		resumed := *q
		resumed.ID, resumed.Resume = r.request(q.Prompt, 0).ID, part
		out, err := r.try(&resumed)
		if err != nil {
			r.Errorf("%s: cut behind %d tokens, %q: %v", name, len(part.Tokens), part.Text, err)
			return
		}
		c := out.choices[0]
		text := part.Text + c.text
		same := text == whole.text && c.finish == whole.finish
		wrong := doubled(part.Text, c.text, whole.text)
		if r.h.Exact {
			sure := unstopped.sure(len(part.Tokens))
			wrong = !same && (sure == len(unstopped.text) || shared(text, whole.text) < min(sure, len(whole.text)))
		}
		if wrong && !same {
			r.Errorf("%s: cut behind %d tokens, %q, it goes on with %q (%s); the whole is %q (%s)",
				name, len(part.Tokens), part.Text, c.text, c.finish, whole.text, whole.finish)
		}
		if n := shared(text, whole.text); n < len(text) && n < len(whole.text) {
			other++ // greedy output differs by a token now and then, as what is made together is another batch shape
		}
		r.counted(name, q, part, c, whole, same)
	}
	if other > cuts/2 && !r.h.Exact {
		r.Errorf("%s: of %d outputs that were cut %d went on otherwise", name, cuts, other)
	}
}

// counted: the tokens that were made elsewhere count as made, and not as prompt.
func (r *rig) counted(name string, q *engine.Request, part *engine.Resume, c, whole choice, same bool) {
	r.Helper()
	u := c.usage
	if u.Prompt < 1 || u.Cached > u.Prompt || u.Completion < len(part.Tokens) || u.Completion > 2*q.MaxTokens {
		r.Errorf("%s: cut behind %d tokens the usage is %+v", name, len(part.Tokens), u)
	}
	if !r.h.Exact {
		return
	}
	if u.Prompt != whole.usage.Prompt || same && u.Completion != whole.usage.Completion {
		r.Errorf("%s: cut behind %d tokens the usage is %+v, that of the whole %+v", name, len(part.Tokens), u, whole.usage)
	}
	if same && len(part.Tokens)+len(c.logprobs) != len(whole.logprobs) {
		r.Errorf("%s: cut behind %d tokens %d log probabilities come; the whole has %d", name, len(part.Tokens), len(c.logprobs), len(whole.logprobs))
	}
}

// doubled reports whether an output that was cut says its last words a second time, or leaves out the next ones.
func doubled(before, after, whole string) bool {
	const word = 12
	next := strings.TrimPrefix(whole, before)
	if n := len(before) - word; n >= 0 && strings.HasPrefix(after, before[n:]) {
		return !strings.HasPrefix(next, before[n:]) && !strings.HasPrefix(before[n:], next) // some texts repeat themselves
	}
	return len(after) >= word && len(next) > word && strings.Contains(next[1:], after[:word]) && !strings.HasPrefix(next, after[:word])
}

// refusesResumes: what can't be gone on with is refused by its field.
func (r *rig) refusesResumes(part *engine.Resume) {
	for name, change := range map[string]func(*engine.Request){
		"two choices":                 func(q *engine.Request) { q.Choices = 2 },
		"a format":                    func(q *engine.Request) { q.Format = engine.FormatJSONObject },
		"more than max_tokens":        func(q *engine.Request) { q.MaxTokens = len(part.Tokens) - 1 },
		"a token that is none":        func(q *engine.Request) { q.Resume.Tokens[0] = -1 },
		"more than the context holds": func(q *engine.Request) { q.Resume.Tokens = make([]engine.Token, r.e.Info().ContextTokens) },
	} {
		if len(part.Tokens) < 3 {
			return // it names none
		}
		q := r.request(r.text(), 0, func(q *engine.Request) {
			kept := *part
			kept.Tokens = slices.Clone(part.Tokens)
			q.Resume = &kept
		}, change)
		var invalid *engine.InvalidError
		if _, err := r.try(q); !errors.As(err, &invalid) || invalid.Field != "resume_tokens" {
			r.Errorf("%s: got %v", name, err)
		}
	}
	if len(part.Tokens) < 3 {
		return
	}
	all := r.request(r.text(), len(part.Tokens), func(q *engine.Request) { q.Resume = part })
	if c := r.answer(all).choices[0]; c.text != "" || c.finish != engine.FinishLength || c.usage.Completion != len(part.Tokens) {
		r.Errorf("with all tokens made it says %q, ends by %q, and counts %+v", c.text, c.finish, c.usage)
	}
}
