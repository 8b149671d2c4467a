package openai

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// told is an event as a test compares it.
type told struct{ name, data string }

// parsed reads the events of a stream that comes in pieces of at most size bytes.
func parsed(t *testing.T, stream string, size int) []told {
	t.Helper()
	var out []told
	for in := newEvents(&pieces{stream, size}, eventBytes); ; {
		e, err := in.next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, told{e.name, string(e.data)})
	}
}

// pieces is a stream that comes so.
type pieces struct {
	rest string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// standard is the reading of a whole stream by the standard's own steps, and the end of the stream ends the last event.
func standard(stream string) []told {
	stream = strings.TrimPrefix(stream, "\uFEFF")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var out []told
	name, data := "", []string(nil)
	dispatch := func() {
		if data != nil {
			out = append(out, told{name, strings.Join(data, "\n")})
		}
		name, data = "", nil
	}
	for line := range strings.SplitSeq(stream, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			dispatch()
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	dispatch()
	return out
}

// FuzzSSEParse: whatever the bytes are and however they come, they are the events that the standard makes of them, no larger
// than they came, and what those become for the worker is the same.
func FuzzSSEParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/streams/*")
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(string(text), byte(7))
		}
	}
	f.Fuzz(func(t *testing.T, stream string, size byte) {
		want, got := standard(stream), parsed(t, stream, int(size)+1)
		if !slices.Equal(got, want) {
			t.Fatalf("the events are\n%q, not\n%q", got, want)
		}
		n := 0
		for _, e := range got {
			n += len(e.name) + len(e.data)
		}
		if n > len(stream) {
			t.Fatalf("%d bytes became %d", len(stream), n)
		}
		if whole, cut := understand(strings.NewReader(stream)), understand(iotest.OneByteReader(strings.NewReader(stream))); whole != cut {
			t.Errorf("at once: %s\nin pieces: %s", whole, cut)
		}
	})
}

func TestAnEventMayRepeatThePromptByItsTokens(t *testing.T) {
	const bytes = 200_000
	stream := "data: [" + strings.Repeat("151643, ", bytes) + "]\n\n"
	if _, err := newEvents(strings.NewReader(stream), maxEvent(bytes)).next(); err != nil {
		t.Errorf("after a prompt of as many bytes: %v", err)
	}
	if _, err := newEvents(strings.NewReader(stream), maxEvent(bytes/2)).next(); !errors.Is(err, errEventTooLong) {
		t.Errorf("after half of it: %v", err)
	}
}
