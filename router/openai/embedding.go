package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
)

// Bounds of `input`.
const (
	// MaxInputs is how many inputs a request may have.
	MaxInputs = 2048
	// MaxInputTokens is how many tokens it may have altogether, where it is made of tokens.
	MaxInputTokens = 300_000
)

// EmbeddingRequest is what a valid body of POST /v1/embeddings asks for.
type EmbeddingRequest struct {
	// Model is the name that the client wrote.
	Model string
	// Inputs are from 1 to MaxInputs.
	Inputs []Input
	// Base64 asks for vectors as text instead of as numbers.
	Base64 bool
}

// Input is a text or, where that is empty, tokens.
type Input struct {
	Text   string
	Tokens []uint32
}

// ParseEmbedding reads a body by the rules of ParseChat.
func ParseEmbedding(body []byte) (*EmbeddingRequest, error) {
	p := embedParser{reader: newReader(body)}
	if err := readBody(&p.reader, &p, knownOfEmbedding, unsupportedOfEmbedding, "model", "input"); err != nil {
		return nil, err
	}
	return &p.req, nil
}

// embedParser reads one body.
type embedParser struct {
	reader
	req    EmbeddingRequest
	tokens int // of all inputs
}

var knownOfEmbedding = map[string]func(*embedParser, string) *Error{
	"model":           func(p *embedParser, n string) *Error { return p.model(n, &p.req.Model) },
	"input":           (*embedParser).input,
	"encoding_format": (*embedParser).format,
}

// unsupportedOfEmbedding holds the parameters that would change the vectors: OpenAI's first, then those of other servers.
var unsupportedOfEmbedding = map[string]only{
	"dimensions": {},

	"add_special_tokens":     {"true"},
	"truncate_prompt_tokens": {},
	"normalize":              {"true"},
}

func (p *embedParser) format(name string) *Error {
	var format string
	if err := p.str(name, &format); err != nil {
		return err
	}
	if format != "float" && format != "base64" {
		return invalid(CodeInvalidValue, name, "%s must be float or base64, and %q is not.", name, clip(format))
	}
	p.req.Base64 = format == "base64"
	return nil
}

const wantInput = "a string, an array of strings, an array of tokens or an array of those"

// input reads one of the four shapes.
func (p *embedParser) input(name string) *Error {
	switch p.s.space() {
	case '"':
		return p.text(name)
	case '[':
	default:
		return p.mismatch(name, wantInput)
	}
	if n := p.peek(); n == '-' || n >= '0' && n <= '9' {
		return p.tokenList(name)
	}
	err := p.s.array(func(i int) *Error {
		at := name + "[" + strconv.Itoa(i) + "]"
		if i >= MaxInputs {
			return invalid(CodeInvalidValue, name, "%s has more than %d inputs.", name, MaxInputs)
		}
		switch p.s.space() {
		case '"':
			return p.text(at)
		case '[':
			return p.tokenList(at)
		}
		return p.mismatch(at, "a string or an array of tokens")
	})
	if err == nil && len(p.req.Inputs) == 0 {
		err = invalid(CodeInvalidValue, name, "%s has no inputs; 1 to %d are allowed.", name, MaxInputs)
	}
	return err
}

// peek is the first byte within the array that begins here.
func (p *embedParser) peek() byte {
	inside := scanner{b: p.s.b, i: p.s.i + 1}
	return inside.space()
}

func (p *embedParser) text(name string) *Error {
	var text string
	if err := p.str(name, &text); err != nil {
		return err.in(name)
	}
	if text == "" {
		return invalid(CodeInvalidValue, name, "%s must not be empty.", name)
	}
	p.req.Inputs = append(p.req.Inputs, Input{Text: text})
	return nil
}

func (p *embedParser) tokenList(name string) *Error {
	var tokens []uint32
	err := p.s.array(func(i int) *Error {
		if p.tokens++; p.tokens > MaxInputTokens {
			return invalid(CodeInvalidValue, "input", "input has more than %d tokens.", MaxInputTokens)
		}
		token, err := p.token()
		if err != nil {
			return err.in(name + "[" + strconv.Itoa(i) + "]")
		}
		tokens = append(tokens, token)
		return nil
	})
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		return invalid(CodeInvalidValue, name, "%s must not be empty.", name)
	}
	p.req.Inputs = append(p.req.Inputs, Input{Tokens: tokens})
	return nil
}

// token reads a number that may be one. It leaves the scanner's count of values alone: tokens have a bound of their own.
func (p *embedParser) token() (uint32, *Error) {
	if c := p.s.space(); c != '-' && (c < '0' || c > '9') {
		got := p.s.kind()
		if _, err := p.s.value(); err != nil {
			return 0, err
		}
		return 0, invalid(CodeInvalidType, "", "A token must be an integer, not %s.", got)
	}
	from := p.s.i
	if err := p.s.number(); err != nil {
		return 0, err
	}
	text := string(p.s.b[from:p.s.i])
	token, bad := strconv.ParseUint(text, 10, 31)
	if bad != nil {
		return 0, invalid(CodeInvalidValue, "", "A token must be an integer from 0 to %d, and %s is not.", math.MaxInt32, clip(text))
	}
	return uint32(token), nil
}

// AppendEmbeddingsHead appends what comes before the vectors of an answer, of which there is at least one.
func AppendEmbeddingsHead(dst []byte) []byte { return append(dst, `{"object":"list","data":[`...) }

// AppendEmbedding appends the vector of one input. Its numbers are finite.
func AppendEmbedding(dst []byte, index int, values []float32, asBase64 bool) []byte {
	if index > 0 {
		dst = append(dst, ',')
	}
	dst = strconv.AppendInt(append(dst, `{"object":"embedding","index":`...), int64(index), 10)
	dst = append(dst, `,"embedding":`...)
	if asBase64 {
		raw := make([]byte, 0, 4*len(values))
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), `"}`...)
	}
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
	}
	return append(dst, `]}`...)
}

// AppendEmbeddingsTail appends what comes after the vectors.
func AppendEmbeddingsTail(dst []byte, model string, promptTokens uint32) []byte {
	dst = appendString(append(dst, `],"model":`...), model)
	dst = strconv.AppendUint(append(dst, `,"usage":{"prompt_tokens":`...), uint64(promptTokens), 10)
	dst = strconv.AppendUint(append(dst, `,"total_tokens":`...), uint64(promptTokens), 10)
	return append(dst, `}}`...)
}
