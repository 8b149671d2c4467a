package openai

import (
	"math"
	"strconv"
)

// FinishReason is why an answer ended.
type FinishReason string

// The reasons for which an answer ends.
const (
	FinishStop      FinishReason = "stop"
	FinishLength    FinishReason = "length"
	FinishToolCalls FinishReason = "tool_calls"
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

// Choice is one whole output.
type Choice struct {
	Text      string
	Reasoning string
	ToolCalls []ToolCall
	Logprobs  []Logprob
	Finish    FinishReason
}

// ToolCall is a call, or in a stream the next piece of one: the first of an index has ID and Name, and the pieces of
// Arguments, joined, are JSON.
type ToolCall struct {
	Index     uint32
	ID, Name  string
	Arguments string
}

// Logprob is a token's bytes and the natural logarithm of its probability.
type Logprob struct {
	Bytes   []byte
	Logprob float64
	Top     []Logprob
}

// BodySize is about how many bytes the body of an answer takes, without log probabilities: enough where little of the text
// has to be escaped.
func (c *Completion) BodySize(choices []Choice) int {
	const head, each, call = 320, 128, 96
	n := head + len(c.ID) + len(c.Model)
	for _, o := range choices {
		n += each + len(o.Text) + len(o.Text)/16 + len(o.Reasoning) + len(o.Reasoning)/16
		for _, t := range o.ToolCalls {
			n += call + len(t.ID) + len(t.Name) + 2*len(t.Arguments)
		}
	}
	return n
}

// AppendBody appends the whole answer as the body of a response that is not streamed.
func (c *Completion) AppendBody(dst []byte, choices []Choice, u Usage) []byte {
	dst = c.appendHead(dst, "chat.completion")
	dst = append(dst, `"choices":[`...)
	for i, o := range choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(i), 10)
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		if o.Text == "" && len(o.ToolCalls) > 0 {
			dst = append(dst, "null"...)
		} else {
			dst = appendString(dst, o.Text)
		}
		if o.Reasoning != "" {
			dst = appendString(append(dst, `,"reasoning_content":`...), o.Reasoning)
		}
		if len(o.ToolCalls) > 0 {
			dst = append(dst, `,"tool_calls":[`...)
			for j, t := range o.ToolCalls {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = append(t.appendWhole(append(dst, '{')), '}')
			}
			dst = append(dst, ']')
		}
		dst = append(dst, `,"refusal":null},"logprobs":`...)
		if o.Logprobs == nil {
			dst = append(dst, "null"...)
		} else {
			dst = append(appendLogprobs(append(dst, `{"content":`...), o.Logprobs, true), `,"refusal":null}`...)
		}
		dst = append(appendString(append(dst, `,"finish_reason":`...), string(o.Finish)), '}')
	}
	dst = append(dst, `],"usage":`...)
	return append(appendUsage(dst, u), '}')
}

// appendWhole appends the members of a call that is new to the client.
func (t *ToolCall) appendWhole(dst []byte) []byte {
	dst = appendString(append(dst, `"id":`...), t.ID)
	dst = appendString(append(dst, `,"type":"function","function":{"name":`...), t.Name)
	dst = appendString(append(dst, `,"arguments":`...), t.Arguments)
	return append(dst, '}')
}

// appendLogprobs appends a list of tokens, those of the upper level with their alternatives.
func appendLogprobs(dst []byte, list []Logprob, upper bool) []byte {
	dst = append(dst, '[')
	for i, l := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"token":`...), string(l.Bytes))
		// JSON has no -Inf; OpenAI's clients know -9999 as "very unlikely".
		value := max(l.Logprob, -9999)
		if math.IsNaN(value) {
			value = -9999
		}
		dst = strconv.AppendFloat(append(dst, `,"logprob":`...), value, 'g', 8, 64)
		dst = append(dst, `,"bytes":[`...)
		for j, b := range l.Bytes {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(b), 10)
		}
		dst = append(dst, ']')
		if upper {
			dst = appendLogprobs(append(dst, `,"top_logprobs":`...), l.Top, false)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
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
