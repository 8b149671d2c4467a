package gateway

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/ringfleet/ringfleet/router/openai"
)

// affinityKey says which conversation a request belongs to. The first name that the client gave counts: its session
// header, the conversation or the response it continues, its cache key, its user. Without any it is a hash of the
// messages up to and with the user's first one: every later turn begins with these, while a system prompt alone, which
// many conversations share, would bring all of them to one worker. What an adapter has computed is of no use to another,
// so its name belongs to the key.
func affinityKey(adapter, session string, r *openai.ChatRequest) []byte {
	key := make([]byte, 0, 64)
	if adapter != "" {
		key = appendName(key, "adapter", adapter)
		key = append(key, 0) // no name holds one
	}
	for _, name := range []struct{ kind, value string }{
		{"session", session},
		{"conversation", r.Conversation},
		{"response", r.PreviousResponseID},
		{"cache", r.PromptCacheKey},
		{"user", r.User},
	} {
		if name.value != "" {
			return appendName(key, name.kind, name.value)
		}
	}
	d := xxhash.New()
	for _, part := range r.Leading {
		_, _ = d.Write(part)
		_, _ = d.Write([]byte{0}) // no part holds one
	}
	return d.Sum(append(key, "prompt\x00"...))
}

// embeddingKey is the key of a request for embeddings: its session header, or else a hash of the first input, which
// spreads them. They leave nothing on a worker that a later one could use, so no other name brings them together.
func embeddingKey(session string, r *openai.EmbeddingRequest) []byte {
	if session != "" {
		return appendName(nil, "session", session)
	}
	d := xxhash.New()
	_, _ = d.WriteString(r.Inputs[0].Text)
	for _, t := range r.Inputs[0].Tokens {
		_, _ = d.Write(binary.LittleEndian.AppendUint32(nil, t))
	}
	return d.Sum([]byte("input\x00"))
}

func appendName(dst []byte, kind, value string) []byte {
	return append(append(append(dst, kind...), 0), value...)
}
