package dialect

import "strings"

// calls is how a family writes calls.
type calls interface {
	// openers are the markers by which a call may begin within text. None is part of another.
	openers() []string
	// head reads from an opener to the arguments of the first call.
	head(c *cursor) (h head, ok bool)
	// next reads what follows the arguments of last: up to the arguments of another call, or to the end of all that belongs
	// to calls; then ok is false.
	next(c *cursor, last head) (another head, ok bool)
}

// head is what is known of a call when its arguments begin.
type head struct {
	name      string
	reader    reader // of the arguments; nil: they were read with the head
	arguments string
	listed    bool // the call is a JSON object
	open      bool // that is still open after the arguments
}

// reader makes JSON of a call's arguments while they come.
type reader interface {
	// read consumes n bytes of buf and returns JSON for them. After done the rest of buf is not part of the arguments. If
	// final no more comes, and all of buf is consumed unless done.
	read(buf string, final bool) (n int, json string, done bool)
}

// named reports whether name can be that of a tool.
func named(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || strings.ContainsRune("\"'`{}[]()<>", r)
	})
}

// objects are calls that are JSON objects with the members name and arguments, or parameters, in either order: one, or
// several in a list or in a row.
type objects struct {
	open    []string
	closing string // "": there is none
	tools   tools
}

func (o *objects) openers() []string { return o.open }

func (o *objects) head(c *cursor) (head, bool) {
	marked := false
	for _, m := range o.open {
		if marked = c.takes(m); marked {
			break
		}
	}
	if !marked { // see family.bare
		h, ok := o.object(c, false)
		_, known := o.tools[h.name]
		return h, ok && known && (h.reader != nil || h.arguments != "{}")
	}
	c.space()
	if c.takes("[") {
		c.space()
	}
	return o.object(c, true)
}

// object reads an object up to its arguments. If they come before the name it reads all of it. Only a marked one may have
// members that calls don't have.
func (o *objects) object(c *cursor, marked bool) (h head, ok bool) {
	h = head{listed: true, arguments: "{}"}
	if !c.takes("{") {
		return h, false
	}
	for {
		if ok = o.part(c, &h, marked); !ok || h.open {
			return h, ok
		}
		c.space()
		if c.takes("}") {
			return h, h.name != ""
		}
		if !c.takes(",") {
			return h, false
		}
	}
}

// part reads a member into h. Before arguments that come after the name it stops, with h open.
func (o *objects) part(c *cursor, h *head, marked bool) bool {
	key, ok := c.member()
	switch {
	case !ok:
		return false
	case key == "name":
		h.name, ok = c.quoted()
		return ok && named(h.name)
	case key == "arguments" || key == "parameters":
		if h.name != "" && c.sees("{") {
			h.reader, h.open = &jsonArguments{ends: o.ends()}, true
			return true
		}
		v, ok := c.value()
		if ok && v != "null" {
			h.arguments = v
			return v[0] == '{'
		}
		return ok
	case !marked && key != "type":
		return false
	}
	_, ok = c.value()
	return ok
}

// member reads what stands before the value of a member.
func (c *cursor) member() (key string, ok bool) {
	c.space()
	if key, ok = c.quoted(); !ok {
		return "", false
	}
	c.space()
	ok = c.takes(":")
	c.space()
	return key, ok
}

func (o *objects) ends() []string {
	if o.closing == "" {
		return nil
	}
	return []string{o.closing}
}

func (o *objects) next(c *cursor, last head) (head, bool) {
	if last.open {
		o.close(c)
	}
	end := c.at
	c.space()
	if !c.takes(",") {
		c.takes(";")
	}
	c.space()
	if c.sees("{") {
		if h, ok := o.object(c, true); ok || c.short {
			return h, ok
		}
	}
	c.at = end
	c.takesAll("]", o.closing)
	return head{}, false
}

// close reads the members after the arguments, and the end of the object.
func (o *objects) close(c *cursor) {
	from := c.at
	for {
		c.space()
		if c.takes("}") {
			return
		}
		ok := c.takes(",")
		if ok {
			_, ok = c.member()
		}
		if ok {
			_, ok = c.value()
		}
		if !ok {
			c.at = from
			return
		}
	}
}

// takesAll consumes those of markers that come next, in this order, and the space between and before them.
func (c *cursor) takesAll(markers ...string) {
	for _, m := range markers {
		from := c.at
		c.space()
		if m == "" || !c.takes(m) {
			c.at = from
		}
	}
}
