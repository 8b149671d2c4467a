package openai

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func embedding(input, more string) string { return `{"model":"m","input":` + input + more + `}` }

var refusedEmbeddings = map[string]struct {
	body, param, code, say string
}{
	"an empty body":                  {"", "", CodeInvalidJSON, "model and input"},
	"half an object":                 {`{"input":"x"`, "", CodeInvalidJSON, ""},
	"no model":                       {`{"input":"x"}`, "model", CodeMissing, ""},
	"no input":                       {`{"model":"m"}`, "input", CodeMissing, ""},
	"an input that is null":          {embedding("null", ""), "input", CodeMissing, ""},
	"an empty string":                {embedding(`""`, ""), "input", CodeInvalidValue, "must not be empty"},
	"an empty string among others":   {embedding(`["a",""]`, ""), "input[1]", CodeInvalidValue, "must not be empty"},
	"no inputs":                      {embedding("[]", ""), "input", CodeInvalidValue, "1 to 2048"},
	"no tokens among others":         {embedding("[[1],[]]", ""), "input[1]", CodeInvalidValue, "must not be empty"},
	"a number":                       {embedding("1", ""), "input", CodeInvalidType, "an array of tokens"},
	"an object among strings":        {embedding(`["a",{}]`, ""), "input[1]", CodeInvalidType, "not an object"},
	"a number among strings":         {embedding(`["a",1]`, ""), "input[1]", CodeInvalidType, "not a number"},
	"a string among tokens":          {embedding(`[1,"a"]`, ""), "input[1]", CodeInvalidType, "not a string"},
	"a token that is a fraction":     {embedding(`[[1,2.5]]`, ""), "input[0][1]", CodeInvalidValue, "2.5"},
	"a negative token":               {embedding(`[-1]`, ""), "input[0]", CodeInvalidValue, "0 to 2147483647"},
	"a token of 32 bits":             {embedding(`[2147483648]`, ""), "input[0]", CodeInvalidValue, "2147483648"},
	"tokens that are broken":         {embedding(`[1,]`, ""), "input[1]", CodeInvalidJSON, ""},
	"inputs that are broken":         {embedding(`["a",]`, ""), "input", CodeInvalidJSON, ""},
	"an input that is deeper":        {embedding(`[[[1]]]`, ""), "input[0][0]", CodeInvalidType, "not an array"},
	"one input too many":             {embedding("["+strings.Repeat(`"a",`, MaxInputs)+`"a"]`, ""), "input", CodeInvalidValue, "more than 2048 inputs"},
	"one token too many":             {embedding("["+strings.Repeat("1,", MaxInputTokens)+"1]", ""), "input", CodeInvalidValue, "more than 300000 tokens"},
	"one token too many in all":      {embedding("[["+strings.Repeat("1,", MaxInputTokens)+"1],[1]]", ""), "input", CodeInvalidValue, "more than 300000 tokens"},
	"two inputs by name":             {embedding(`"a"`, `,"input":"b"`), "input", CodeDuplicate, ""},
	"an encoding that nobody has":    {embedding(`"a"`, `,"encoding_format":"int8"`), "encoding_format", CodeInvalidValue, "float or base64"},
	"an encoding that is a number":   {embedding(`"a"`, `,"encoding_format":8`), "encoding_format", CodeInvalidType, ""},
	"dimensions":                     {embedding(`"a"`, `,"dimensions":256`), "dimensions", CodeUnsupportedParameter, "leave it out"},
	"a prompt that should be cut":    {embedding(`"a"`, `,"truncate_prompt_tokens":5`), "truncate_prompt_tokens", CodeUnsupportedParameter, ""},
	"vectors of another length":      {embedding(`"a"`, `,"normalize":false`), "normalize", CodeUnsupportedParameter, ""},
	"something after the object":     {embedding(`"a"`, "") + "x", "", CodeInvalidJSON, ""},
	"an unknown parameter, broken":   {embedding(`"a"`, `,"x":?`), "x", CodeInvalidJSON, ""},
	"an input with half a surrogate": {embedding(`"\ud800"`, ""), "input", CodeInvalidJSON, ""},
}

func TestBadEmbeddingRequestsAreRefusedByTheirParameter(t *testing.T) {
	for name, c := range refusedEmbeddings {
		t.Run(name, func(t *testing.T) {
			_, err := ParseEmbedding([]byte(c.body))
			var e *Error
			if !errors.As(err, &e) || e.Param != c.param || e.Code != c.code || !strings.Contains(e.Message, c.say) || e.Type != InvalidRequest {
				t.Errorf("got %+v, want %s %s %q", err, c.param, c.code, c.say)
			}
		})
	}
}

func TestEveryShapeOfInputIsRead(t *testing.T) {
	for body, want := range map[string]EmbeddingRequest{
		embedding(`"a"`, ""):                 {Model: "m", Inputs: []Input{{Text: "a"}}},
		embedding(` [ "a" , "\u00e9" ]`, ""): {Model: "m", Inputs: []Input{{Text: "a"}, {Text: "é"}}},
		embedding(`[ 1, 0,2147483647 ]`, ""): {Model: "m", Inputs: []Input{{Tokens: []uint32{1, 0, 2147483647}}}},
		embedding(`[[1],[2,3]]`, ""):         {Model: "m", Inputs: []Input{{Tokens: []uint32{1}}, {Tokens: []uint32{2, 3}}}},
		embedding(`["a",[2,3]]`, `,"encoding_format":"base64","user":"u"`): {
			Model: "m", Inputs: []Input{{Text: "a"}, {Tokens: []uint32{2, 3}}}, Base64: true},
		embedding(`"a"`, `,"encoding_format":"float","dimensions":null,"x":[1,2],"normalize":true`): {Model: "m", Inputs: []Input{{Text: "a"}}},
	} {
		if got, err := ParseEmbedding([]byte(body)); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for name, body := range map[string]string{
		"the most inputs": embedding("["+strings.Repeat(`"a",`, MaxInputs-1)+`"a"]`, ""),
		"the most tokens": embedding("["+strings.Repeat("1,", MaxInputTokens-1)+"1]", ""),
	} {
		if _, err := ParseEmbedding([]byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVectorsOnTheWire(t *testing.T) {
	for name, c := range map[string]struct {
		base64 bool
		want   string
	}{
		"as numbers": {false, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1e-10,0]},{"object":"embedding","index":1,"embedding":[1]}],` +
			`"model":"m\"","usage":{"prompt_tokens":7,"total_tokens":7}}`},
		"as text": {true, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AAAAP//m264AAAAA"},{"object":"embedding","index":1,"embedding":"AACAPw=="}],` +
			`"model":"m\"","usage":{"prompt_tokens":7,"total_tokens":7}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := AppendEmbeddingsHead(nil)
			got = AppendEmbedding(got, 0, []float32{0.5, -1e-10, 0}, c.base64)
			got = AppendEmbedding(got, 1, []float32{1}, c.base64)
			got = AppendEmbeddingsTail(got, `m"`, 7)
			if string(got) != c.want || !json.Valid(got) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnAdapterNamesItsModel(t *testing.T) {
	for want, m := range map[string]Model{
		`{"id":"a","object":"model","created":1,"owned_by":"ringfleet"}`:               {ID: "a", Created: 1},
		`{"id":"a","object":"model","created":1,"owned_by":"ringfleet","parent":"m"}`:  {ID: "a", Created: 1, Adapter: true, Parent: "m"},
		`{"id":"a","object":"model","created":1,"owned_by":"ringfleet","parent":null}`: {ID: "a", Created: 1, Adapter: true},
	} {
		if got := string(AppendModel(nil, m)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// What ParseEmbedding accepts is JSON, and has as many inputs as it says.
func FuzzEmbeddingRequest(f *testing.F) {
	for _, c := range refusedEmbeddings {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	f.Add([]byte(embedding(`["a",[2,3]]`, "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseEmbedding(b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" || e.Code == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if !json.Valid(b) || len(got.Inputs) == 0 || len(got.Inputs) > MaxInputs {
			t.Fatalf("accepted %q as %+v", b, got)
		}
		for _, in := range got.Inputs {
			if (in.Text == "") == (len(in.Tokens) == 0) {
				t.Fatalf("an input is %+v", in)
			}
		}
	})
}
