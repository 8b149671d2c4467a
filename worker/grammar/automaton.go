package grammar

// The bounds. They keep a model from going on for ever where a grammar alone would let it: a text within them may have any
// number of members and strings of any length.
const (
	// maxDepth is how far objects and arrays nest.
	maxDepth = 64
	// maxNumber is how many bytes a number has. One that must go on, as after its point, has two fewer so that it can.
	maxNumber = 128
	// indent is how many blanks in a row there may be, for each level of nesting and once more: a line break and the
	// widest indentation that people use.
	indent = 8
)

// state is a place in the grammar: a row of the table. Inside of an object or array it says which of the two; what
// encloses that is the machine's to know.
type state uint8

// The states between values. The table makes those inside of strings, numbers and words.
const (
	start       state = iota // before the object
	objectFirst              // after {
	objectKey                // after a member and its comma
	objectColon              // after a key
	objectValue              // after a colon
	objectNext               // after a member
	arrayFirst               // after [
	arrayValue               // after an item and its comma
	arrayNext                // after an item
	end                      // after the object
	between                  // how many these are

	// What a byte may do but lead to a state.
	openObject state = 252
	openArray  state = 253
	shut       state = 254 // leaves the object or array
	wrong      state = 255
)

// machine reads a text byte by byte. Its zero value is at the beginning.
type machine struct {
	state state
	depth uint8
	run   uint16 // bytes of the number, or blanks in a row, that end here
	kinds uint64 // of what is open, the innermost in bit 0: 1 is an object
}

// step reads b and reports whether it may stand there. After a false one the machine is of no use.
func (m *machine) step(b byte) bool {
	switch next := grammar.table[m.state][b]; next {
	case wrong:
		return false
	case openObject, openArray:
		return m.open(next)
	case shut:
		m.shut()
		return true
	default:
		return m.move(next, b)
	}
}

// read reads bytes and reports whether all of them may stand there.
func (m *machine) read(piece []byte) bool {
	for _, b := range piece {
		if !m.step(b) {
			return false
		}
	}
	return true
}

func (m *machine) open(kind state) bool {
	if m.depth == maxDepth {
		return false
	}
	m.depth++
	m.run = 0
	m.kinds <<= 1
	m.state = arrayFirst
	if kind == openObject {
		m.kinds |= 1
		m.state = objectFirst
	}
	return true
}

func (m *machine) shut() {
	m.depth--
	m.run = 0
	m.kinds >>= 1
	switch {
	case m.depth == 0:
		m.state = end
	case m.kinds&1 == 1:
		m.state = objectNext
	default:
		m.state = arrayNext
	}
}

// move goes to a state at the same depth, within the bounds of numbers and blanks.
func (m *machine) move(next state, b byte) bool {
	most := 0
	switch {
	case next < between:
		if blank(b) {
			most = indent * (int(m.depth) + 1)
		}
		if m.state >= between {
			m.run = 0
		}
	case grammar.number[next]:
		most = maxNumber
		if !grammar.whole[next] {
			most -= 2
		}
		if m.state < between {
			m.run = 0
		}
	}
	m.state = next
	if most == 0 {
		m.run = 0
		return true
	}
	if int(m.run) >= most {
		return false
	}
	m.run++
	return true
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
