package gateway

import (
	"github.com/cespare/xxhash/v2"

	"github.com/ringfleet/ringfleet/router/openai"
)

// affinityKey says which conversation a request belongs to. The first name that the client gave counts: its session
// header, the conversation or the response it continues, its cache key, its user. Without any it is a hash of the
// messages up to and with the user's first one: every later turn begins with these, while a system prompt alone, which
// many conversations share, would bring all of them to one worker.
func affinityKey(session string, r *openai.ChatRequest) []byte {
	for _, name := range []struct{ kind, value string }{
		{"session", session},
		{"conversation", r.Conversation},
		{"response", r.PreviousResponseID},
		{"cache", r.PromptCacheKey},
		{"user", r.User},
	} {
		if name.value != "" {
			return append(append(append(make([]byte, 0, 64), name.kind...), 0), name.value...)
		}
	}
	d := xxhash.New()
	for _, part := range r.Leading {
		_, _ = d.Write(part)
		_, _ = d.Write([]byte{0}) // no part holds one
	}
	return d.Sum(append(make([]byte, 0, 16), "prompt\x00"...))
}
