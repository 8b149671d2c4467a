package grammar

// maxStates bounds the table; the grammar has 106.
const maxStates = 128

// tables are the grammar as the machine reads it.
type tables struct {
	table  [maxStates][256]state
	number [maxStates]bool // the state is inside of a number
	whole  [maxStates]bool // the number could end there
	body   [maxStates]bool // the state is inside of a string, between characters
	key    state           // such a state
	states state
	arrays state // from here on, states are inside of arrays
}

// inObject reports whether the innermost thing that is open at s, if one is, is an object.
func (g *tables) inObject(s state) bool { return s < arrayFirst || s >= between && s < g.arrays }

// grammar is RFC 8259's, of an object, with UTF-8 as RFC 3629 has it, and surrogates in pairs only, as RFC 7493 asks: some
// parsers refuse others.
var grammar = build()

func build() *tables {
	g := &tables{states: between}
	for s := range g.table {
		for b := range g.table[s] {
			g.table[s][b] = wrong
		}
	}
	for s := range between {
		g.on(s, " \t\n\r", s)
	}
	g.on(start, "{", openObject)
	g.on(objectFirst, "}", shut)
	g.on(objectNext, "}", shut)
	g.on(objectNext, ",", objectKey)
	g.on(objectColon, ":", objectValue)
	g.on(arrayFirst, "]", shut)
	g.on(arrayNext, "]", shut)
	g.on(arrayNext, ",", arrayValue)

	g.key = g.text(objectColon)
	g.on(objectFirst, `"`, g.key)
	g.on(objectKey, `"`, g.key)
	g.value(objectNext, objectValue)
	g.arrays = g.states
	g.value(arrayNext, arrayFirst, arrayValue)
	return g
}

// on makes each of bytes lead from one state to another.
func (g *tables) on(from state, bytes string, to state) {
	for _, b := range []byte(bytes) {
		g.table[from][b] = to
	}
}

// span makes each byte from lo to hi lead from one state to another.
func (g *tables) span(from state, lo, hi byte, to state) {
	for b := int(lo); b <= int(hi); b++ {
		g.table[from][b] = to
	}
}

func (g *tables) add() state {
	g.states++
	return g.states - 1
}

// value lets a value begin at each of the states at; next follows it.
func (g *tables) value(next state, at ...state) {
	text, minus, zero, digits := g.text(next), g.add(), g.add(), g.add()
	g.numbers(next, minus, zero, digits)
	for _, s := range at {
		g.on(s, `"`, text)
		g.on(s, "{", openObject)
		g.on(s, "[", openArray)
		g.on(s, "-", minus)
		g.on(s, "0", zero)
		g.span(s, '1', '9', digits)
	}
	for _, word := range []string{"true", "false", "null"} {
		rest := next
		for i := len(word) - 1; i > 0; i-- {
			s := g.add()
			g.on(s, word[i:i+1], rest)
			rest = s
		}
		for _, s := range at {
			g.on(s, word[:1], rest)
		}
	}
}

// numbers makes the states of a number. It ends by a byte that may follow it.
func (g *tables) numbers(next, minus, zero, digits state) {
	point, fraction, e, sign, exponent := g.add(), g.add(), g.add(), g.add(), g.add()
	for _, s := range []state{zero, digits, fraction, exponent} {
		g.whole[s] = true
		g.table[s] = g.table[next]
	}
	for _, s := range []state{minus, zero, digits, point, fraction, e, sign, exponent} {
		g.number[s] = true
	}
	g.on(minus, "0", zero)
	g.span(minus, '1', '9', digits)
	g.span(digits, '0', '9', digits)
	g.span(point, '0', '9', fraction)
	g.span(fraction, '0', '9', fraction)
	g.on(e, "+-", sign)
	for _, s := range []state{e, sign, exponent} {
		g.span(s, '0', '9', exponent)
	}
	for _, s := range []state{zero, digits} {
		g.on(s, ".", point)
	}
	for _, s := range []state{zero, digits, fraction} {
		g.on(s, "eE", e)
	}
}

// text makes the states of a string and returns the one after its opening quote; next follows its closing one.
func (g *tables) text(next state) state {
	body := g.add()
	g.body[body] = true
	g.span(body, 0x20, 0x7f, body)
	g.on(body, `"`, next)
	g.characters(body)
	g.escapes(body)
	return body
}

// characters makes the states inside of a character of several bytes (RFC 3629, section 4).
func (g *tables) characters(body state) {
	first, middle, last := g.add(), g.add(), g.add()
	g.span(last, 0x80, 0xbf, body)
	g.span(middle, 0x80, 0xbf, last)
	g.span(first, 0x80, 0xbf, middle)
	g.span(body, 0xc2, 0xdf, last)
	g.span(body, 0xe1, 0xef, middle)
	g.span(body, 0xf1, 0xf3, first)
	for _, c := range []struct {
		lead, lo, hi byte
		to           state
	}{
		{0xe0, 0xa0, 0xbf, last},   // shorter forms
		{0xed, 0x80, 0x9f, last},   // surrogates
		{0xf0, 0x90, 0xbf, middle}, // shorter forms
		{0xf4, 0x80, 0x8f, middle}, // above U+10FFFF
	} {
		s := g.add()
		g.span(body, c.lead, c.lead, s)
		g.span(s, c.lo, c.hi, c.to)
	}
}

// escapes makes the states after a backslash. A high surrogate must be followed by a low one.
func (g *tables) escapes(body state) {
	const digits = "0123456789abcdefABCDEF"
	escape, first, second, third, fourth := g.add(), g.add(), g.add(), g.add(), g.add()
	g.on(body, `\`, escape)
	g.on(escape, `"\/bfnrt`, body)
	g.on(escape, "u", first)
	g.on(first, digits, second)
	g.on(second, digits, third)
	g.on(third, digits, fourth)
	g.on(fourth, digits, body)

	d, third1, fourth1, slash, u, first2, second2 := g.add(), g.add(), g.add(), g.add(), g.add(), g.add(), g.add()
	g.on(first, "dD", d)
	g.on(d, "01234567", third)
	g.on(d, "89abAB", third1)
	g.on(third1, digits, fourth1)
	g.on(fourth1, digits, slash)
	g.on(slash, `\`, u)
	g.on(u, "u", first2)
	g.on(first2, "dD", second2)
	g.on(second2, "cdefCDEF", third)
}
