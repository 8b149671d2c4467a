package openai

// Parts of a stream that are the same in each.
const (
	// KeepAlive is a comment, which clients skip.
	KeepAlive = ": keep-alive\n\n"
	// Done ends a stream that has a finish reason, and no other.
	Done = "data: [DONE]\n\n"
)

// AppendRole appends the first event of a stream.
func (c *Completion) AppendRole(dst []byte) []byte {
	dst = c.openChunk(dst)
	dst = append(dst, `{"role":"assistant","content":""},"finish_reason":null}]`...)
	return c.closeChunk(dst)
}

// AppendText appends an event with the next piece of text, whole characters only.
func (c *Completion) AppendText(dst []byte, text string) []byte {
	dst = c.openChunk(dst)
	dst = append(dst, `{"content":`...)
	dst = appendString(dst, text)
	dst = append(dst, `},"finish_reason":null}]`...)
	return c.closeChunk(dst)
}

// AppendEnd appends what ends a stream well: the finish reason, the usage where it was asked for, and Done.
func (c *Completion) AppendEnd(dst []byte, why FinishReason, u Usage) []byte {
	dst = c.openChunk(dst)
	dst = append(dst, `{},"finish_reason":`...)
	dst = appendString(dst, string(why))
	dst = c.closeChunk(append(dst, `}]`...))
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
func (c *Completion) openChunk(dst []byte) []byte {
	dst = c.appendHead(append(dst, "data: "...), "chat.completion.chunk")
	return append(dst, `"choices":[{"index":0,"delta":`...)
}

// closeChunk appends what follows the choices.
func (c *Completion) closeChunk(dst []byte) []byte {
	if c.IncludeUsage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}
