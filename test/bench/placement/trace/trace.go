// Package trace reads traces of requests in the form of Mooncake's: one JSON object a line, with a time, two lengths and
// the ids of the prompt's blocks of 512 tokens. It says what a trace holds; it replays nothing and places nothing.
package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// BlockTokens is the length of the blocks that a trace names, in tokens.
const BlockTokens = 512

// Source is where such traces can be had.
const Source = "https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces: conversation_trace.jsonl and synthetic_trace.jsonl"

// maxLine is the length of a line beyond which a file is no trace, in bytes.
const maxLine = 1 << 20

// Request is one line of a trace.
type Request struct {
	// Index counts the requests of the trace from 0, in the order of their arrival.
	Index int
	// At is the time from the start of the trace to the arrival.
	At time.Duration
	// Input and Output are the lengths of prompt and answer, in tokens; both are 1 or more.
	Input, Output int
	// Blocks are the ids of the prompt's blocks, the last of which may be a part of one. Two prompts with the same id at
	// the same place have everything before it in common, too.
	Blocks []uint64
}

// Trace is the requests of a file. It is not changed once it is read.
type Trace struct {
	Name     string
	Requests []Request
}

// line is the form in the file; the time is in milliseconds.
type line struct {
	Timestamp    *float64 `json:"timestamp"`
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
}

// Read reads the trace in a file. Its name is the file's without the ending.
func Read(path string) (*Trace, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the trace: there is no file %s; traces can be had from %s", path, Source)
	}
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer f.Close()
	t, err := Parse(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), f)
	if err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", path, err)
	}
	return t, nil
}

// Parse reads a trace. Requests that are not in the order of their times are put into it.
func Parse(name string, r io.Reader) (*Trace, error) {
	t := &Trace{Name: name}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		n++
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		q, err := request(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		t.Requests = append(t.Requests, q)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(t.Requests) == 0 {
		return nil, errors.New("it holds no request")
	}
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	for i := range t.Requests {
		t.Requests[i].Index = i
	}
	return t, nil
}

// request reads one line.
func request(text []byte) (Request, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Request{}, fmt.Errorf("want a JSON object with timestamp, input_length, output_length and hash_ids: %w", err)
	}
	if l.Timestamp == nil || *l.Timestamp < 0 {
		return Request{}, errors.New("want a timestamp of 0 milliseconds or more")
	}
	if l.InputLength < 1 || l.OutputLength < 0 {
		return Request{}, fmt.Errorf("input_length %d and output_length %d: want 1 or more and 0 or more", l.InputLength, l.OutputLength)
	}
	if want := (l.InputLength + BlockTokens - 1) / BlockTokens; len(l.HashIDs) != want {
		return Request{}, fmt.Errorf("%d hash_ids for a prompt of %d tokens: want %d, one for each %d tokens", len(l.HashIDs), l.InputLength, want, BlockTokens)
	}
	at := time.Duration(*l.Timestamp * float64(time.Millisecond))
	return Request{At: at, Input: l.InputLength, Output: max(1, l.OutputLength), Blocks: l.HashIDs}, nil
}

// Totals are what a trace holds altogether.
type Totals struct {
	Requests      int
	Blocks        int
	Input, Output int // tokens
	Lasts         time.Duration
	// Ceiling is the share of blocks that a single cache without bounds would find.
	Ceiling float64
}

// Totals counts.
func (t *Trace) Totals() Totals {
	out := Totals{Requests: len(t.Requests), Lasts: t.Requests[len(t.Requests)-1].At}
	seen := map[uint64]bool{}
	hits := 0
	for _, q := range t.Requests {
		out.Input += q.Input
		out.Output += q.Output
		out.Blocks += len(q.Blocks)
		leading := true
		for _, id := range q.Blocks {
			leading = leading && seen[id]
			if leading {
				hits++
			}
			seen[id] = true
		}
	}
	out.Ceiling = float64(hits) / float64(out.Blocks)
	return out
}
