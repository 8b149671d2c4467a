package trace

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const good = `{"timestamp": 1500, "input_length": 513, "output_length": 0, "hash_ids": [0, 7]}

{"timestamp": 0, "input_length": 512, "output_length": 3, "hash_ids": [0], "more": true}
{"timestamp": 1500, "input_length": 1025, "output_length": 9, "hash_ids": [0, 7, 8]}
`

func TestRequestsComeInTheOrderOfTheirTimes(t *testing.T) {
	got, err := Parse("some", strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	want := &Trace{Name: "some", Requests: []Request{
		{Index: 0, At: 0, Input: 512, Output: 3, Blocks: []uint64{0}},
		{Index: 1, At: 1500 * time.Millisecond, Input: 513, Output: 1, Blocks: []uint64{0, 7}},
		{Index: 2, At: 1500 * time.Millisecond, Input: 1025, Output: 9, Blocks: []uint64{0, 7, 8}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	totals := Totals{Requests: 3, Blocks: 6, Input: 2050, Output: 13, Lasts: 1500 * time.Millisecond, Ceiling: 0.5}
	if got.Totals() != totals {
		t.Errorf("%+v", got.Totals())
	}
}

func TestABlockCountsAsFoundOnlyWhereAllBeforeItAre(t *testing.T) {
	got, err := Parse("", strings.NewReader(`{"timestamp":0,"input_length":1000,"hash_ids":[1,2]}`+"\n"+`{"timestamp":0,"input_length":1000,"hash_ids":[3,2]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Totals().Ceiling; c != 0 {
		t.Errorf("%g of the blocks", c)
	}
}

func TestWhatIsNoTraceIsRefusedByItsLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                 {"\n", "it holds no request"},
		"no JSON":                 {"\ntimestamp,input\n", "line 2: want a JSON object"},
		"no time":                 {`{"input_length":1,"hash_ids":[1]}`, "line 1: want a timestamp"},
		"a time before the start": {`{"timestamp":-1,"input_length":1,"hash_ids":[1]}`, "line 1: want a timestamp"},
		"no prompt":               {`{"timestamp":1}`, "input_length 0 and output_length 0"},
		"an id that is no number": {`{"timestamp":1,"input_length":1,"hash_ids":["a"]}`, "line 1: want a JSON object"},
		"too few ids":             {`{"timestamp":1,"input_length":513,"hash_ids":[1]}`, "line 1: 1 hash_ids for a prompt of 513 tokens: want 2"},
		"an endless line":         {strings.Repeat(" ", maxLine+1), "line 1: bufio.Scanner: token too long"},
	} {
		if _, err := Parse("", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAMissingFileSaysWhereTracesAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.jsonl")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "kvcache-ai/Mooncake") {
		t.Errorf("%v", err)
	}
}

func TestATraceIsNamedAfterItsFile(t *testing.T) {
	got, err := Read("../cmd/testdata/conversation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "conversation" || len(got.Requests) != 64 {
		t.Errorf("%s has %d requests", got.Name, len(got.Requests))
	}
}
