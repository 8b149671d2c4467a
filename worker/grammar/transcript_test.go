package grammar

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// TestTranscripts runs testdata/object. Rewrite it with -rewrite.
//
//	tokens            the vocabulary: each word of the input, quoted as in Go where it needs to be
//	write TOKEN …     a new output, token by token; then what may come next
func TestTranscripts(t *testing.T) {
	var pieces []string
	datadriven.RunTest(t, "testdata/object", func(t *testing.T, d *datadriven.TestData) string {
		named := fields(t, d.Input)
		if d.Cmd == "tokens" {
			pieces = named
			return ""
		}
		v, stop := words(pieces...)
		o := v.JSONObject()
		for _, name := range named {
			token := engine.Token(slices.Index(pieces, name))
			if !o.Allows(token) {
				return fmt.Sprintf("%q may not come", name)
			}
			o.Accept(token)
		}
		var next []string
		for token, piece := range pieces {
			if o.Allows(engine.Token(token)) {
				next = append(next, fmt.Sprintf("%q", piece))
			}
		}
		if o.Allows(stop) {
			next = append(next, "the end")
		}
		return strings.Join(next, "  ")
	})
}

// fields returns the quoted words of a text.
func fields(t *testing.T, text string) (out []string) {
	t.Helper()
	for _, f := range strings.Fields(text) {
		var s string
		if _, err := fmt.Sscanf(f, "%q", &s); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out = append(out, s)
	}
	return out
}
