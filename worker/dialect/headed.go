package dialect

import "strings"

// headed are calls whose name stands before the JSON of their arguments.
type headed struct {
	section string // may open several calls
	begin   string // opens one
	// name reads from after begin to before the arguments.
	name func(c *cursor) (string, bool)
	tail []string // what may stand after the arguments, in this order
}

func (h *headed) openers() []string { return []string{h.section, h.begin} }

func (h *headed) head(c *cursor) (head, bool) {
	if c.takes(h.section) {
		c.space()
	}
	if !c.takes(h.begin) {
		return head{}, false
	}
	name, ok := h.name(c)
	if !ok || !named(name) {
		return head{}, false
	}
	c.space()
	return head{name: name, reader: &jsonArguments{ends: append(h.openers(), h.tail...)}}, c.sees("{")
}

func (h *headed) next(c *cursor, _ head) (head, bool) {
	c.takesAll(h.tail...)
	return head{}, false
}

// deepseek reads `name<｜tool▁sep｜>`, and of older models "function<｜tool▁sep｜>name\n```json".
func deepseek(c *cursor) (string, bool) {
	name, ok := c.word("<")
	if !ok || !c.takes("<｜tool▁sep｜>") {
		return "", false
	}
	c.space()
	if c.sees("{") {
		return name, true
	}
	if name, ok = c.word("`{<"); !ok {
		return "", false
	}
	c.space()
	return name, c.takes("```json")
}

// kimi reads `functions.name:0<|tool_call_argument_begin|>`. The number counts the calls of a chat.
func kimi(c *cursor) (string, bool) {
	c.space()
	id, ok := c.word("<")
	c.space()
	ok = ok && c.takes("<|tool_call_argument_begin|>")
	name := strings.TrimPrefix(id, "functions.")
	if at := strings.LastIndexByte(name, ':'); at >= 0 && strings.Trim(name[at+1:], "0123456789") == "" {
		name = name[:at]
	}
	return name, ok
}

// mistral are calls that begin by [TOOL_CALLS]: a list of objects, or of newer models a name, [ARGS] and arguments. The
// tokens between are not in all templates.
type mistral struct{ objects }

func (m *mistral) head(c *cursor) (head, bool) {
	if !c.takes("[TOOL_CALLS]") {
		return head{}, false
	}
	if c.space(); c.sees("[") || c.sees("{") {
		c.at = 0
		return m.objects.head(c)
	}
	name, ok := c.word("[{")
	if !ok || !named(name) {
		return head{}, false
	}
	c.space()
	if c.takes("[CALL_ID]") {
		_, ok = c.upTo("[ARGS]")
	}
	c.takes("[ARGS]")
	c.space()
	return head{name: name, reader: &jsonArguments{ends: m.open}}, ok && c.sees("{")
}

func (m *mistral) next(c *cursor, last head) (head, bool) {
	if !last.listed {
		return head{}, false
	}
	return m.objects.next(c, last)
}

// written are calls that are written as in a programming language.
type written struct {
	open, closing string
	before        string // a name, such as call:
	list          bool   // calls stand in brackets, with commas between
	brackets      string // around arguments
	assign        string // between a key and its value
	delimiter     string // see literal
	objects       *objects
}

func (w *written) openers() []string { return []string{w.open} }

func (w *written) head(c *cursor) (head, bool) {
	if !c.takes(w.open) {
		return head{}, false
	}
	c.space()
	if w.list {
		if !c.takes("[") {
			return head{}, false
		}
		if c.space(); c.sees("{") {
			return w.objects.object(c, true)
		}
	}
	return w.call(c)
}

// call reads a name and the bracket after it, and sees to it that a key or the end comes next.
func (w *written) call(c *cursor) (h head, ok bool) {
	if !c.takes(w.before) {
		return h, false
	}
	h.name, ok = c.word("({[<")
	if !ok || !named(h.name) || !c.takes(w.brackets[:1]) {
		return h, false
	}
	h.reader = &literal{delimiter: w.delimiter, ends: w.closing, brackets: []byte(w.brackets[1:])}
	at := c.at
	if c.space(); !c.sees(w.brackets[1:]) {
		_, ok = c.word(w.assign + "({[<,)}]\"'")
		c.space()
		ok = ok && c.sees(w.assign)
	}
	c.at = at
	return h, ok
}

func (w *written) next(c *cursor, last head) (head, bool) {
	if last.listed {
		return w.objects.next(c, last)
	}
	if w.list {
		end := c.at
		c.space()
		if c.takes(",") {
			c.space()
			if h, ok := w.call(c); ok || c.short {
				return h, ok
			}
		}
		c.at = end
		c.takesAll("]")
	}
	c.takesAll(w.closing)
	return head{}, false
}
