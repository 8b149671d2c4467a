package grammar

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is a vocabulary of some pieces. Its last token ends an output and has no bytes of its own.
func words(pieces ...string) (v *Vocabulary, stop engine.Token) {
	stop = engine.Token(len(pieces))
	piece := func(t engine.Token) []byte {
		if t == stop {
			return []byte("{") // of no effect
		}
		return []byte(pieces[t])
	}
	v = New(len(pieces)+1, piece, func(t engine.Token) bool { return t == stop })
	v.read()
	return v, stop
}

// everyByte are the pieces of one byte each.
func everyByte() (out []string) {
	for b := range 256 {
		out = append(out, string([]byte{byte(b)}))
	}
	return out
}

// object reports whether a text is what a JSONObject may be, by encoding/json and the bounds.
func object(text []byte) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(text, &members) == nil && members != nil && utf8.Valid(text) && paired(text) && bounded(text)
}

// paired reports whether the escaped surrogates of a valid JSON text come in pairs.
func paired(text []byte) bool {
	unit := func(i int) uint64 {
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		u, _ := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		return u
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xdc00 && u < 0xe000:
			return false
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + 6); low < 0xdc00 || low >= 0xe000 {
				return false
			}
			i += 11
		default:
			i++ // what is escaped
		}
	}
	return true
}

// bounded reports whether a valid JSON text keeps the bounds of nesting, numbers and blanks.
func bounded(text []byte) bool {
	depth, blanks, number, inside := 0, 0, 0, false
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case inside && b == '\\':
			i++
		case b == '"':
			inside = !inside
		case inside:
			continue
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		}
		if !inside && blank(b) {
			blanks++
		} else {
			blanks = 0
		}
		if !inside && (strings.IndexByte("-0123456789", b) >= 0 || number > 0 && strings.IndexByte(".eE+", b) >= 0) {
			number++
		} else {
			number = 0
		}
		open := strings.IndexByte(".eE+-", b) >= 0
		if depth > maxDepth || blanks > indent*(depth+1) || number > maxNumber || open && number > maxNumber-2 {
			return false
		}
	}
	return true
}

// texts are seeds: each a text, and whether it is one object.
var texts = map[string]bool{
	`{}`: true, ` {"a" : [ ] } `: true, `{"a":{"b":[1,-0,0.5,1e9,2E-7,3.25e+10,true,false,null,"x",[],{}]}}`: true,
	`{"é€😀":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\uD83D\uDE00\ue000"}`: true, "{\"\x7f\":0}": true, `{"a":1,"a":2}`: true,
	"{\n\t\"a\":\r\n1}\n": true, `{"":""}`: true,
	``: false, `[]`: false, `1`: false, `null`: false, `{`: false, `{}}`: false, `{}{}`: false, `{} 1`: false, `{,}`: false,
	`{"a"}`: false, `{"a":}`: false, `{"a":1,}`: false, `{"a" 1}`: false, `{a:1}`: false, `{'a':1}`: false, `{"a":[1,]}`: false,
	`{"a":[,1]}`: false, `{"a":[1 2]}`: false, `{"a":[1}`: false, `{"a":{]}`: false, `{"a":01}`: false, `{"a":-}`: false,
	`{"a":1.}`: false, `{"a":.5}`: false, `{"a":+1}`: false, `{"a":1e}`: false, `{"a":1e+}`: false, `{"a":0x1}`: false,
	`{"a":--1}`: false, `{"a":NaN}`: false, `{"a":True}`: false, `{"a":tru}`: false, `{"a":nulll}`: false,
	"{\"a\n\":1}": false, "{\"\x00\":1}": false, `{"\x":1}`: false, `{"\u12g4":1}`: false, `{"\u123":1}`: false,
	`{"\ud800":1}`: false, `{"\udc00\udc00":1}`: false, `{"\udc00":1}`: false, `{"\ud800\ud800":1}`: false, `{"\ud800x":1}`: false, `{"\ud800\n":1}`: false,
	"{\"\xff\":1}": false, "{\"\xc0\x80\":1}": false, "{\"\xe0\x80\x80\":1}": false, "{\"\xed\xa0\x80\":1}": false,
	"{\"\xf4\x90\x80\x80\":1}": false, "{\"\xf0\x80\x80\x80\":1}": false, "{\"\xe2\x82\":1}": false, "{\"\x80\":1}": false,
	"\xef\xbb\xbf{}": false, "\v{}": false, "\u00a0{}": false, `/**/{}`: false, `{"a":1//x` + "\n}": false,
}

// accepts reads text in the pieces of some sizes, and reports whether a whole object was read.
func accepts(text []byte, sizes func() int) bool {
	var pieces []string
	for rest := text; len(rest) > 0; {
		n := min(max(sizes(), 1), len(rest))
		pieces, rest = append(pieces, string(rest[:n])), rest[n:]
	}
	v, stop := words(pieces...)
	o := v.JSONObject()
	for t := range pieces {
		if !o.Allows(engine.Token(t)) {
			return false
		}
		o.Accept(engine.Token(t))
	}
	return o.Complete() && o.Allows(stop)
}

// FuzzText compares what is read, in pieces of any sizes, with what is an object.
func FuzzText(f *testing.F) {
	for text := range texts {
		f.Add([]byte(text), uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, a, b uint8) {
		i := 0
		sizes := func() int {
			i++
			return int([]uint8{a, b}[i%2])
		}
		if got, want := accepts(text, sizes), object(text); got != want {
			t.Errorf("%q: accepted %t, is an object %t", text, got, want)
		}
	})
}

func TestATextIsReadExactlyWhenItIsAnObject(t *testing.T) {
	for text, want := range texts {
		for _, size := range []int{1, 2, 3, 1000} {
			if got := accepts([]byte(text), func() int { return size }); got != want {
				t.Errorf("%q by %d bytes: accepted %t, want %t", text, size, got, want)
			}
		}
		if got := object([]byte(text)); got != want {
			t.Errorf("%q: the reference says %t, want %t", text, got, want)
		}
	}
}

func TestEveryObjectIsReadHoweverItIsSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawObject(t, 0))
		if !object(text) {
			t.Fatalf("%q is no object: the generator is wrong", text)
		}
		size := rapid.IntRange(1, 9)
		if !accepts(text, func() int { return size.Draw(t, "size") }) {
			t.Fatalf("%q is refused", text)
		}
	})
}

// drawObject draws a text of an object, in any style.
func drawObject(t *rapid.T, depth int) string {
	return drawList(t, "{", "}", depth, func() string {
		return drawString(t) + gap(t) + ":" + gap(t) + drawValue(t, depth+1)
	})
}

func drawList(t *rapid.T, open, shut string, depth int, item func() string) string {
	var items []string
	for range rapid.IntRange(0, max(3-depth, 0)).Draw(t, "items") {
		items = append(items, gap(t)+item()+gap(t))
	}
	if len(items) == 0 {
		return open + gap(t) + shut
	}
	return open + strings.Join(items, ",") + shut
}

func drawValue(t *rapid.T, depth int) string {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return drawObject(t, depth)
	case 1:
		return drawList(t, "[", "]", depth, func() string { return drawValue(t, depth+1) })
	case 2:
		return drawString(t)
	case 3:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?`).Draw(t, "number")
	}
	return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
}

func drawString(t *rapid.T) string {
	part := rapid.OneOf(
		rapid.StringMatching(`[^"\\\x00-\x1f]{0,5}`),
		rapid.StringMatching(`\\["\\/bfnrt]`),
		rapid.StringMatching(`\\u([0-9a-cefA-CEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2}`),
		rapid.StringMatching(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`),
		rapid.SampledFrom([]string{"é", "€", "😀", "\u2028", "\U0010ffff", "\u0800", "\ud7ff", "\ue000", "\x7f"}),
	)
	return `"` + strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "string"), "") + `"`
}

func gap(t *rapid.T) string { return rapid.StringMatching(`[ \t\r\n]{0,3}`).Draw(t, "gap") }
