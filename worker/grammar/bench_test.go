package grammar

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// large is a vocabulary of 152,000 pieces: those of somePieces, and words with and without blanks and marks around them.
func large() *Vocabulary {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := somePieces
	marks := []string{"", "", "", "", " ", " ", " ", `"`, ` "`, `":`, `",`, ",", "}", "]", ".", "(", "\n", "  ", `"}`, `\n`}
	for len(pieces) < 152000 {
		word := make([]byte, 1+r.IntN(9))
		for i := range word {
			word[i] = byte('a' + r.IntN(26))
			if r.IntN(40) == 0 {
				word[i] = byte('0' + r.IntN(10))
			}
		}
		pieces = append(pieces, marks[r.IntN(len(marks))]+string(word)+marks[r.IntN(len(marks))])
	}
	v, _ := words(pieces...)
	return v
}

// places are texts after which tokens are asked for.
var places = []string{``, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"b`, `{"a":"b"`, `{"a":[`, `{"a":[1`, `{"a":["x`, `{"a":{"b":1}`, `{}`}

func at(v *Vocabulary, text string) *JSONObject {
	o := v.JSONObject()
	for _, b := range []byte(text) {
		o.Accept(engine.Token(b))
	}
	return o
}

// BenchmarkMask is what a whole row costs at a place that has been met before.
func BenchmarkMask(b *testing.B) {
	v := large()
	row := make([]float32, v.size())
	for _, text := range places {
		o := at(v, text)
		allowed := 0
		for token := range engine.Token(v.size()) {
			if o.Allows(token) {
				allowed++
			}
		}
		b.Run(fmt.Sprintf("after %q", text), func(b *testing.B) {
			b.ReportMetric(float64(allowed), "allowed")
			for b.Loop() {
				o.Mask(row)
			}
		})
	}
}

// BenchmarkAllows is what one token costs.
func BenchmarkAllows(b *testing.B) {
	v := large()
	o := at(v, `{"a":"b`)
	token := engine.Token(0)
	for b.Loop() {
		o.Allows(token)
		token = (token + 7919) % engine.Token(v.size())
	}
}

// BenchmarkFirst is what the first visit to each place costs, once for a model.
func BenchmarkFirst(b *testing.B) {
	v := large()
	for _, text := range places {
		s := at(v, text).machine.state
		b.Run(fmt.Sprintf("after %q", text), func(b *testing.B) {
			for b.Loop() {
				v.sorted[s].Store(nil)
				v.at(s)
			}
		})
	}
}
