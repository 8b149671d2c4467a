package dialect

import "slices"

// tagged are calls that are written as tags, with one for each parameter. An empty string is a part that a family hasn't.
type tagged struct {
	open, closing []string // around one call or several
	name, named   string   // before and after a name; if name is empty a space or tag ends a name
	end           string   // after the parameters; if empty, closing is
	key, keyed    string   // before and after the name of a parameter
	value, valued string   // before and after a value
	loose         bool     // name is an opener too: models forget to open
	lines         bool     // a value stands between line breaks that aren't part of it
	typed         bool     // between keyed and the value stands true"> or false">: whether it is a string
	tools         tools
}

func (t *tagged) openers() []string {
	if t.loose {
		return append(t.open[:len(t.open):len(t.open)], t.name)
	}
	return t.open
}

func (t *tagged) head(c *cursor) (head, bool) {
	if !slices.ContainsFunc(t.open, c.takes) && !t.loose {
		return head{}, false
	}
	c.space()
	return t.call(c)
}

// call reads a name, and sees to it that a parameter or the end comes next.
func (t *tagged) call(c *cursor) (h head, ok bool) {
	if t.name == "" {
		h.name, ok = c.word("<")
	} else if ok = c.takes(t.name); ok {
		h.name, ok = c.upTo(t.named)
		ok = ok && c.takes(t.named)
	}
	if !ok || !named(h.name) {
		return h, false
	}
	c.space()
	h.reader = &tags{form: t, parameters: t.tools[h.name]}
	return h, c.sees(t.key) || t.ends(c)
}

// ends reports whether the end of the parameters comes next.
func (t *tagged) ends(c *cursor) bool {
	return t.end != "" && c.sees(t.end) || slices.ContainsFunc(t.closing, c.sees)
}

func (t *tagged) next(c *cursor, _ head) (head, bool) {
	c.takesAll(t.end)
	end := c.at
	if c.space(); t.name != "" && c.sees(t.name) {
		if h, ok := t.call(c); ok || c.short {
			return h, ok
		}
	}
	c.at = end
	c.takesAll(t.closing...)
	return head{}, false
}
