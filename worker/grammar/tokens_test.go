package grammar

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// somePieces are such as vocabularies have, and cross the borders of the grammar in every way.
var somePieces = append(everyByte(), `{"`, `":`, `": "`, `",`, `", "`, `"}`, `"}}`, `"]}`, `"}],"`, `}}`, `}}}`, `]]`, `],[`, `},{`, `}{`, `{}`, `[]`,
	`[[`, `{{`, `[{`, `[{"`, `{"a":{"b":`, `{"a":{"b":[{}]}}`, `[[],[]]`, `]}]`, `]],`, `,"`, `, `, `: `, ` {`, ` [`, "\n", "\n\n", "\n  ", "      ",
	"                                ", " \"", "12", "123", "1.5", "0.", "-1", "e9", "e+", ".5", "00", "1,", "1}", "1]", "1}}", "12,13", " 1", "true", "false", "null", "tr", "ue", "fals", "null}", "true,",
	`true]]`, `\`, `\u`, `\u00`, `\ud83d`, `\ud83d\u`, `\ude00`, `\n`, `\\"`, "é", "\xc3", "\xa9\"", "\xf0\x9f", "\x98\x80", "\xe2\x82", "hello", " world", "a\"", "abc\":1", "", "\x00", `",[],1`, `",{},"a":`, `":"","`,
	strings.Repeat("[", 40), strings.Repeat("1", 70), strings.Repeat("]", 40), strings.Repeat(" ", 128), strings.Repeat("1", 140), strings.Repeat("[", 65))

// naive reports whether a token's bytes may follow a text, by reading all of it.
func naive(text []byte, piece string) bool {
	var m machine
	return piece != "" && m.read(text) && m.read([]byte(piece))
}

// FuzzTokens walks through a vocabulary by the tokens that are allowed. At each place it compares what is allowed with
// what the whole text allows; in the end it finishes the object, whichever place the walk has come to.
func FuzzTokens(f *testing.F) {
	f.Add([]byte{123, 34, 34, 58, 7, 44})
	f.Add([]byte{0})
	v, stop := words(somePieces...)
	f.Fuzz(func(t *testing.T, choices []byte) {
		o, text := v.JSONObject(), []byte{}
		row := make([]float32, v.size())
		for i, choice := range choices[:min(len(choices), 60)] {
			var allowed []engine.Token
			for token, piece := range somePieces {
				ok := o.Allows(engine.Token(token))
				if i < 8 || i%8 == 0 {
					if want := naive(text, piece); ok != want {
						t.Fatalf("%q: %q is allowed %t, want %t", text, piece, ok, want)
					}
				}
				if ok {
					allowed = append(allowed, engine.Token(token))
				}
			}
			clear(row)
			o.Mask(row)
			for token := range row {
				if ok := o.Allows(engine.Token(token)); ok != (row[token] == 0) || !ok && !math.IsInf(float64(row[token]), -1) {
					t.Fatalf("%q: the mask of token %d is %g, it is allowed %t", text, token, row[token], ok)
				}
			}
			if o.Allows(stop) != object(text) || o.Complete() != object(text) {
				t.Fatalf("%q: may end %t, is complete %t, is an object %t", text, o.Allows(stop), o.Complete(), object(text))
			}
			if len(allowed) == 0 {
				break // of a complete object with all the blanks that it may have
			}
			// Nearby numbers reach the long pieces at the end too.
			token := allowed[(int(choice)*int(choice)+i)%len(allowed)]
			text = append(text, somePieces[token]...)
			o.Accept(token)
		}
		text = finish(t, o, text)
		if !object(text) || !o.Allows(stop) {
			t.Fatalf("%q is no object", text)
		}
	})
}

// finish goes the shortest way to the end of an object, by tokens of one byte.
func finish(t rapid.TB, o *JSONObject, text []byte) []byte {
	t.Helper()
	way := []byte("\"}]:0\\udcrealsx{\x80\xa0\x90")
	for range 2*maxDepth + 40 {
		if o.Complete() {
			return text
		}
		i := slices.IndexFunc(way, func(b byte) bool { return o.Allows(engine.Token(b)) })
		if i < 0 {
			t.Fatalf("%q: nothing may follow", text)
		}
		text = append(text, way[i])
		o.Accept(engine.Token(way[i]))
	}
	t.Fatalf("%q has no end", text)
	return nil
}

func TestAnyPlaceThatAWalkReachesLeadsToAnObject(t *testing.T) {
	v, _ := words(somePieces...)
	rapid.Check(t, func(t *rapid.T) {
		o, text := v.JSONObject(), []byte{}
		for range rapid.IntRange(0, 200).Draw(t, "tokens") {
			token := engine.Token(rapid.IntRange(0, len(somePieces)-1).Draw(t, "token"))
			if o.Allows(token) {
				o.Accept(token)
				text = append(text, somePieces[token]...)
			}
		}
		text = finish(t, o, text)
		if !object(text) {
			t.Fatalf("%q is no object", text)
		}
	})
}

// Each of these is at the edge of something that the state alone doesn't say.
func TestEachTokenIsJudgedAsTheWholeTextSays(t *testing.T) {
	v, _ := words(somePieces...)
	deep := `{"a":` + strings.Repeat("[", maxDepth-1)
	deeper := strings.Repeat(`{"a":`, maxDepth)
	number := `{"a":` + strings.Repeat("1", maxNumber)
	for _, text := range []string{
		``, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"b`, `{"a":"b"`, `{"a":["b`, `{"a":["b"`, `{"a":[`, `{"a":[[`, `{"a":{"b":1`, `{"a":[1`, `{}`,
		deep[:len(deep)-1], deep, deep + "1", deep + "]", deep + `"`, deeper, deeper + "1", deeper + `"x`,
		number[:len(number)-3], number[:len(number)-2], number[:len(number)-1], number, number[:len(number)-70],
		`{"a":` + strings.Repeat(" ", 14), `{"a":` + strings.Repeat(" ", 16), `{"a":[` + strings.Repeat(" ", 23), `{"a":1` + strings.Repeat(" ", 15),
		strings.Repeat(" ", 7), strings.Repeat(" ", 8), "{}" + strings.Repeat(" ", 6), "{}" + strings.Repeat(" ", 8),
	} {
		o := v.JSONObject()
		for _, b := range []byte(text) {
			o.Accept(engine.Token(b))
		}
		for token, piece := range somePieces {
			if got, want := o.Allows(engine.Token(token)), naive([]byte(text), piece); got != want {
				t.Errorf("%q: %q is allowed %t, want %t", text, piece, got, want)
			}
		}
		finish(t, o, []byte(text))
	}
}

func TestWhatLeadsNowhereIsRefusedAtOnce(t *testing.T) {
	v, _ := words(everyByte()...)
	number := func(n int) string { return `{"a":` + strings.Repeat("1", n) }
	for name, c := range map[string]struct {
		text string
		next byte
		want bool
	}{
		"the 64th level":                {`{"a":` + strings.Repeat("[", 62), '[', true},
		"the 65th level":                {`{"a":` + strings.Repeat("[", 63), '[', false},
		"a point before the last digit": {number(125), '.', true},
		"a point in place of it":        {number(126), '.', false},
		"an e in place of it":           {number(126), 'e', false},
		"the last digit":                {number(127), '1', true},
		"one more":                      {number(128), '1', false},
		"a low surrogate alone":         {`{"\ud`, 'c', false},
		"a high surrogate":              {`{"\ud`, 'b', true},
	} {
		t.Run(name, func(t *testing.T) {
			o := v.JSONObject()
			for _, b := range []byte(c.text) {
				o.Accept(engine.Token(b))
			}
			if got := o.Allows(engine.Token(c.next)); got != c.want {
				t.Errorf("%q may follow %q: %t", c.next, c.text, got)
			}
		})
	}
}

func TestTheBoundsAreWhereTheySay(t *testing.T) {
	nested := func(n int) string {
		return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}"
	}
	number := func(n int) string { return `{"a":` + strings.Repeat("1", n) + "}" }
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"64 levels":                   {nested(64), true},
		"65 levels":                   {nested(65), false},
		"a number of 128 bytes":       {number(128), true},
		"a number of 129 bytes":       {number(129), false},
		"a number after 16 blanks":    {`{"a":` + strings.Repeat(" ", 16) + strings.Repeat("1", 128) + "}", true},
		"8 blanks before":             {strings.Repeat(" ", 8) + "{}", true},
		"9 blanks before":             {strings.Repeat(" ", 9) + "{}", false},
		"8 blanks after":              {"{}" + strings.Repeat("\n", 8), true},
		"9 blanks after":              {"{}" + strings.Repeat("\n", 9), false},
		"16 blanks in an object":      {"{" + strings.Repeat(" ", 16) + "}", true},
		"17 blanks in an object":      {"{" + strings.Repeat(" ", 17) + "}", false},
		"16 blanks after a number":    {`{"a":1` + strings.Repeat(" ", 16) + "}", true},
		"17 blanks after a number":    {`{"a":1` + strings.Repeat(" ", 17) + "}", false},
		"24 blanks in an array in it": {`{"a":[` + strings.Repeat("\t", 24) + "]}", true},
		"25 blanks in an array in it": {`{"a":[` + strings.Repeat("\t", 25) + "]}", false},
		"all that may be around it":   {`{"a":` + strings.Repeat(" ", 16) + "[" + strings.Repeat(" ", 24) + "]" + strings.Repeat(" ", 16) + "}", true},
		"any number of blanks in a string, which is as long as it likes": {`{"a":"` + strings.Repeat(" ", 5000) + `"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 7, 10000} {
				if got := accepts([]byte(c.text), func() int { return size }); got != c.want {
					t.Errorf("by %d bytes: accepted %t", size, got)
				}
			}
			if got := object([]byte(c.text)); got != c.want {
				t.Errorf("the reference says %t", got)
			}
		})
	}
}

func TestOnlyTokensOfTheVocabularyWithBytesMayCome(t *testing.T) {
	v, stop := words("{", "", "}")
	o := v.JSONObject()
	for _, token := range []engine.Token{-1, math.MinInt32, 1, 2, stop, stop + 1, math.MaxInt32} {
		if o.Allows(token) {
			t.Errorf("token %d may come first", token)
		}
	}
	o.Accept(0)
	o.Accept(2)
	for _, token := range []engine.Token{-1, 0, 1, 2, stop + 1} {
		if o.Allows(token) {
			t.Errorf("token %d may follow the object", token)
		}
	}
	if !o.Allows(stop) || !o.Complete() {
		t.Error("the object isn't complete")
	}
	if o.Accept(stop); !o.Complete() {
		t.Error("the object isn't complete after the token that ends it")
	}
}

func TestAfterATokenThatIsNotAllowedNoneIs(t *testing.T) {
	v, stop := words("{", "}", "x")
	o := v.JSONObject()
	o.Accept(0)
	o.Accept(2)
	row := make([]float32, v.size())
	o.Mask(row)
	for token := range stop + 1 {
		if o.Allows(token) || !math.IsInf(float64(row[token]), -1) {
			t.Errorf("token %d is allowed", token)
		}
	}
	if o.Accept(1); o.Complete() {
		t.Error("the object is complete")
	}
	o = v.JSONObject()
	for _, token := range []engine.Token{0, 1, 2} {
		o.Accept(token)
	}
	if o.Complete() || o.Allows(stop) {
		t.Error("the object is complete though more came after it")
	}
}

func TestARowLongerThanTheVocabularyIsMaskedToItsEnd(t *testing.T) {
	v, _ := words("{")
	row := make([]float32, 200)
	v.JSONObject().Mask(row)
	for i, l := range row {
		if (l == 0) != (i == 0) {
			t.Errorf("token %d has %g", i, l)
		}
	}
}

func TestAVocabularyServesManyOutputsAtOnce(t *testing.T) {
	v, stop := words(everyByte()...)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			o := v.JSONObject()
			for _, b := range []byte(`{"a":[1,"x",{"b":null}]}`) {
				if !o.Allows(engine.Token(b)) {
					t.Errorf("%q is refused", b)
				}
				o.Accept(engine.Token(b))
			}
			if !o.Allows(stop) {
				t.Error("the object isn't complete")
			}
		})
	}
	all.Wait()
}

func TestNothingIsAllocatedOnAKnownWay(t *testing.T) {
	v, _ := words(somePieces...)
	row := make([]float32, v.size())
	if n := testing.AllocsPerRun(10, func() {
		o := JSONObject{vocabulary: v, here: v.at(start)}
		for _, b := range []byte(`{"a":[1,"x",{"b":null}]}`) {
			o.Mask(row)
			o.Accept(engine.Token(b))
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
