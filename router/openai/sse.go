package openai

import "strconv"

// Parts of a stream that are the same in each.
const (
	// KeepAlive is a comment, which clients skip.
	KeepAlive = ": keep-alive\n\n"
	// Done ends a stream that has a finish reason, and no other.
	Done = "data: [DONE]\n\n"
)

// AppendComment appends a comment, which clients skip. The text must be one line.
func AppendComment(dst []byte, text string) []byte {
	return append(append(append(dst, ": "...), text...), "\n\n"...)
}

// Delta is the next piece of one choice.
type Delta struct {
	Choice    uint32
	Text      string
	Reasoning string
	ToolCalls []ToolCall
	Logprobs  []Logprob
}

// AppendRole appends the first event of a choice.
func (c *Completion) AppendRole(dst []byte, choice uint32) []byte {
	dst = c.openChunk(dst, choice)
	dst = append(dst, `{"role":"assistant","content":""},"finish_reason":null}]`...)
	return c.closeChunk(dst)
}

// AppendDelta appends an event with the next piece of a choice. Text holds whole characters only.
func (c *Completion) AppendDelta(dst []byte, d *Delta) []byte {
	dst = append(c.openChunk(dst, d.Choice), '{')
	first := len(dst)
	if d.Reasoning != "" {
		dst = appendString(append(dst, `,"reasoning_content":`...), d.Reasoning)
	}
	if d.Text != "" {
		dst = appendString(append(dst, `,"content":`...), d.Text)
	}
	if len(d.ToolCalls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, t := range d.ToolCalls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.appendPiece(dst)
		}
		dst = append(dst, ']')
	}
	if len(dst) > first {
		dst = append(dst[:first], dst[first+1:]...) // the first comma
	}
	dst = append(dst, '}')
	if len(d.Logprobs) > 0 {
		dst = append(appendLogprobs(append(dst, `,"logprobs":{"content":`...), d.Logprobs, true), `,"refusal":null}`...)
	}
	dst = append(dst, `,"finish_reason":null}]`...)
	return c.closeChunk(dst)
}

// appendPiece appends a call's next piece; only the first one of a call names it.
func (t *ToolCall) appendPiece(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, `{"index":`...), uint64(t.Index), 10)
	if t.ID != "" {
		return append(t.appendWhole(append(dst, ',')), '}')
	}
	dst = appendString(append(dst, `,"function":{"arguments":`...), t.Arguments)
	return append(dst, `}}`...)
}

// AppendFinish appends the event that ends a choice.
func (c *Completion) AppendFinish(dst []byte, choice uint32, why FinishReason) []byte {
	dst = c.openChunk(dst, choice)
	dst = append(dst, `{},"finish_reason":`...)
	dst = appendString(dst, string(why))
	return c.closeChunk(append(dst, `}]`...))
}

// AppendDone appends what ends a stream well after the finish of each choice: the usage where it was asked for, and Done.
func (c *Completion) AppendDone(dst []byte, u Usage) []byte {
	if c.IncludeUsage {
		dst = c.appendHead(append(dst, "data: "...), "chat.completion.chunk")
		dst = append(dst, `"choices":[],"usage":`...)
		dst = append(appendUsage(dst, u), "}\n\n"...)
	}
	return append(dst, Done...)
}

// AppendErrorEvent appends the event that ends a stream which broke.
func AppendErrorEvent(dst []byte, e *Error) []byte {
	dst = append(dst, "data: "...)
	return append(AppendError(dst, e), "\n\n"...)
}

// openChunk appends the event up to its delta.
func (c *Completion) openChunk(dst []byte, choice uint32) []byte {
	dst = c.appendHead(append(dst, "data: "...), "chat.completion.chunk")
	dst = strconv.AppendUint(append(dst, `"choices":[{"index":`...), uint64(choice), 10)
	return append(dst, `,"delta":`...)
}

// closeChunk appends what follows the choices.
func (c *Completion) closeChunk(dst []byte) []byte {
	if c.IncludeUsage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}
