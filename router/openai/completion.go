package openai

import "strconv"

// FinishReason is why an answer ended.
type FinishReason string

// The reasons for which an answer ends.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
)

// Usage counts tokens.
type Usage struct {
	Prompt     uint32
	Completion uint32
	// Cached is the part of Prompt that was not computed again.
	Cached uint32
}

// Completion is the answer to one chat request; its head is the same in every event of a stream.
type Completion struct {
	ID    string
	Model string
	// Created is in seconds since 1970.
	Created int64
	// IncludeUsage puts usage into the events of a stream.
	IncludeUsage bool
}

// AppendBody appends the whole answer as the body of a response that is not streamed.
func (c *Completion) AppendBody(dst []byte, text string, why FinishReason, u Usage) []byte {
	dst = c.appendHead(dst, "chat.completion")
	dst = append(dst, `"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"refusal":null},"logprobs":null,"finish_reason":`...)
	dst = appendString(dst, string(why))
	dst = append(dst, `}],"usage":`...)
	dst = appendUsage(dst, u)
	return append(dst, '}')
}

// appendHead appends the members that all objects of an answer share.
func (c *Completion) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, c.ID)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, c.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, c.Model)
	return append(dst, ',')
}

func appendUsage(dst []byte, u Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendUint(dst, uint64(u.Prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendUint(dst, uint64(u.Completion), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendUint(dst, uint64(u.Prompt)+uint64(u.Completion), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendUint(dst, uint64(u.Cached), 10)
	return append(dst, `}}`...)
}
