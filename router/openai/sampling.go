package openai

import "strconv"

// Further bounds of parameters.
const (
	MaxChoices     = 8
	MaxTopLogprobs = 20
	MaxLogitBiases = 300
)

// Format constrains the output.
type Format string

// The formats; the empty one is text.
const (
	FormatText       Format = ""
	FormatJSONObject Format = "json_object"
	FormatJSONSchema Format = "json_schema"
)

func (p *parser) temperature(name string) (err *Error) {
	p.req.Temperature, err = p.decimal(name, func(f float64) bool { return f >= 0 && f <= 2 }, "from 0 to 2")
	return err
}

func (p *parser) topP(name string) (err *Error) {
	p.req.TopP, err = p.decimal(name, func(f float64) bool { return f > 0 && f <= 1 }, "more than 0 and at most 1")
	return err
}

// topK reads how many tokens are considered; 0 and, as vLLM has it, -1 mean all.
func (p *parser) topK(name string) *Error {
	n, err := p.integer(name)
	if err != nil {
		return err
	}
	const most = 1 << 30
	if n < -1 || n > most {
		return invalid(CodeInvalidValue, name, "%s must be from -1 to %d, and %d is not.", name, most, n)
	}
	k := uint32(max(n, 0))
	p.req.TopK = &k
	return nil
}

func (p *parser) minP(name string) (err *Error) {
	p.req.MinP, err = p.decimal(name, func(f float64) bool { return f >= 0 && f <= 1 }, "from 0 to 1")
	return err
}

func (p *parser) penalty(name string, to **float64) (err *Error) {
	*to, err = p.decimal(name, func(f float64) bool { return f >= -2 && f <= 2 }, "from -2 to 2")
	return err
}

func (p *parser) repetition(name string) (err *Error) {
	p.req.RepetitionPenalty, err = p.decimal(name, func(f float64) bool { return f > 0 && f <= 10 }, "more than 0 and at most 10")
	return err
}

func (p *parser) seed(name string) *Error {
	n, err := p.integer(name)
	p.req.Seed = &n
	return err
}

// logitBias reads an object of numbers by token.
func (p *parser) logitBias(name string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(name, "an object of numbers by token")
	}
	return p.s.object(func(key []byte) *Error {
		at := name + "." + clip(string(key))
		token, bad := strconv.ParseUint(string(key), 10, 31)
		if bad != nil {
			return invalid(CodeInvalidValue, at, "%s must be named by a token, and %q is none.", name, clip(string(key)))
		}
		bias, err := p.decimal(at, func(f float64) bool { return f >= -100 && f <= 100 }, "from -100 to 100")
		if err != nil {
			return err.in(at)
		}
		if p.req.LogitBias == nil {
			p.req.LogitBias = map[uint32]float32{}
		}
		if p.req.LogitBias[uint32(token)] = float32(*bias); len(p.req.LogitBias) > MaxLogitBiases {
			return invalid(CodeInvalidValue, name, "%s must have at most %d tokens.", name, MaxLogitBiases)
		}
		return nil
	})
}

// responseFormat reads {"type":"text"}, {"type":"json_object"} or {"type":"json_schema","json_schema":{…}}.
func (p *parser) responseFormat(name string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(name, "an object")
	}
	var kind string
	err := p.s.object(func(key []byte) *Error {
		switch string(key) {
		case "type":
			return p.str(name+".type", &kind)
		case "json_schema":
			if p.s.space() != '{' {
				return p.mismatch(name+".json_schema", "an object")
			}
			raw, err := p.s.value()
			p.req.Schema = raw
			return err
		}
		_, err := p.s.value()
		return err
	})
	if err != nil {
		return err
	}
	switch kind {
	case "text":
		p.req.Schema = nil
	case string(FormatJSONObject):
		p.req.Format, p.req.Schema = FormatJSONObject, nil
	case string(FormatJSONSchema):
		if p.req.Format = FormatJSONSchema; p.req.Schema == nil {
			return invalid(CodeMissing, name+".json_schema", "%s.json_schema is missing.", name)
		}
	default:
		return invalid(CodeInvalidValue, name+".type", "%s.type must be text, json_object or json_schema, and %q is not.", name, clip(kind))
	}
	return nil
}
