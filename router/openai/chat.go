// Package openai is the wire: it reads OpenAI requests and says what is wrong with them, and it writes the bodies,
// events and error objects that OpenAI's clients expect. It works on bytes only: no HTTP, no clock, no model. Which
// status an error becomes, and when an event is sent, is package gateway's to decide.
package openai

import (
	"math"
	"strconv"
)

// Bounds of parameters.
const (
	// MaxStops and MaxStopBytes bound `stop`.
	MaxStops     = 4
	MaxStopBytes = 256
	// MaxMessages bounds `messages`.
	MaxMessages = 10_000
)

// ChatRequest is what a valid body of POST /v1/chat/completions asks for. Its byte slices are parts of that body.
type ChatRequest struct {
	// Model is the name that the client wrote.
	Model string
	// Messages is the array as the client wrote it, byte for byte.
	Messages []byte
	// Tools is the array as the client wrote it; nil where there is none or tool_choice is none.
	Tools []byte
	// Leading holds role and content, as written, of the messages up to and with the first one of the user: what all
	// turns of a conversation share.
	Leading [][]byte

	// Stream asks for events; IncludeUsage for one with the token counts.
	Stream       bool
	IncludeUsage bool

	// MaxTokens is 0 where the client set no limit.
	MaxTokens uint32
	MinTokens uint32
	Stop      []string
	IgnoreEOS bool
	// Choices is how many outputs are made, at least 1.
	Choices     uint32
	Logprobs    bool
	TopLogprobs uint32
	Format      Format
	// Schema is response_format.json_schema as the client wrote it, with FormatJSONSchema.
	Schema []byte
	Sampling

	// Names under which a client may keep its conversation together; empty where absent.
	Conversation       string
	PreviousResponseID string
	PromptCacheKey     string
	User               string
}

// ParseChat reads a body. The error is an *Error that names the parameter and what it must be.
//
// A parameter that is null is absent. One that would change the answer but isn't honoured is refused; one that wouldn't,
// or that nobody knows, is ignored.
func ParseChat(body []byte) (*ChatRequest, error) {
	p := parser{reader: newReader(body)}
	if err := readBody(&p.reader, &p, known, unsupported, "model", "messages"); err != nil {
		return nil, err
	}
	if err := p.together(); err != nil {
		return nil, err
	}
	return &p.req, nil
}

// Sampling says how tokens are chosen. What is nil the client didn't say.
type Sampling struct {
	Temperature       *float64
	TopP              *float64
	TopK              *uint32
	MinP              *float64
	Seed              *int64
	PresencePenalty   *float64
	FrequencyPenalty  *float64
	RepetitionPenalty *float64
	// LogitBias is by token.
	LogitBias map[uint32]float32
}

// parser reads one body.
type parser struct {
	reader
	req ChatRequest

	maxTokens, maxCompletionTokens uint32
	noTools                        bool // tool_choice is none
}

// known holds the reader of every parameter that is honoured. The value that it reads is not null.
var known = map[string]func(*parser, string) *Error{
	"model":                 func(p *parser, n string) *Error { return p.model(n, &p.req.Model) },
	"messages":              (*parser).messages,
	"stream":                func(p *parser, n string) *Error { return p.boolean(n, &p.req.Stream) },
	"stream_options":        (*parser).streamOptions,
	"max_tokens":            func(p *parser, n string) *Error { return p.count(n, &p.maxTokens) },
	"max_completion_tokens": func(p *parser, n string) *Error { return p.count(n, &p.maxCompletionTokens) },
	"min_tokens":            func(p *parser, n string) *Error { return p.number32(n, 0, math.MaxInt32, &p.req.MinTokens) },
	"ignore_eos":            func(p *parser, n string) *Error { return p.boolean(n, &p.req.IgnoreEOS) },
	"n":                     func(p *parser, n string) *Error { return p.number32(n, 1, MaxChoices, &p.req.Choices) },
	"logprobs":              func(p *parser, n string) *Error { return p.boolean(n, &p.req.Logprobs) },
	"top_logprobs":          func(p *parser, n string) *Error { return p.number32(n, 0, MaxTopLogprobs, &p.req.TopLogprobs) },
	"temperature":           (*parser).temperature,
	"top_p":                 (*parser).topP,
	"top_k":                 (*parser).topK,
	"min_p":                 (*parser).minP,
	"presence_penalty":      func(p *parser, n string) *Error { return p.penalty(n, &p.req.PresencePenalty) },
	"frequency_penalty":     func(p *parser, n string) *Error { return p.penalty(n, &p.req.FrequencyPenalty) },
	"repetition_penalty":    (*parser).repetition,
	"logit_bias":            (*parser).logitBias,
	"seed":                  (*parser).seed,
	"response_format":       (*parser).responseFormat,
	"tools":                 (*parser).tools,
	"tool_choice":           (*parser).toolChoice,
	"stop":                  (*parser).stop,
	"conversation":          (*parser).conversation,
	"previous_response_id":  func(p *parser, n string) *Error { return p.str(n, &p.req.PreviousResponseID) },
	"prompt_cache_key":      func(p *parser, n string) *Error { return p.str(n, &p.req.PromptCacheKey) },
	"user":                  func(p *parser, n string) *Error { return p.str(n, &p.req.User) },
}

// together judges what depends on several parameters.
func (p *parser) together() *Error {
	r := &p.req
	r.MaxTokens = p.maxTokens
	if p.maxCompletionTokens > 0 {
		r.MaxTokens = p.maxCompletionTokens
	}
	r.Choices = max(r.Choices, 1)
	if p.noTools {
		r.Tools = nil
	}
	switch {
	case r.TopLogprobs > 0 && !r.Logprobs:
		return invalid(CodeInvalidValue, "top_logprobs", "top_logprobs needs logprobs: true.")
	case r.MaxTokens > 0 && r.MinTokens > r.MaxTokens:
		return invalid(CodeInvalidValue, "min_tokens", "min_tokens is %d, and no more than %d tokens are allowed.", r.MinTokens, r.MaxTokens)
	}
	return nil
}

// count reads a number of tokens.
func (p *parser) count(name string, to *uint32) *Error {
	return p.number32(name, 1, math.MaxInt32, to)
}

// stop reads a string or up to four of them.
func (p *parser) stop(name string) *Error {
	switch p.s.space() {
	case '"':
		return p.stopString(name)
	case '[':
		return p.s.array(func(i int) *Error {
			if i >= MaxStops {
				return invalid(CodeInvalidValue, name, "stop must have at most %d strings.", MaxStops)
			}
			return p.stopString(name + "[" + strconv.Itoa(i) + "]")
		})
	}
	return p.mismatch(name, "a string or an array of strings")
}

func (p *parser) stopString(name string) *Error {
	var text string
	if err := p.str(name, &text); err != nil {
		return err.in(name)
	}
	if n := len(text); n == 0 || n > MaxStopBytes {
		return invalid(CodeInvalidValue, name, "%s must have from 1 to %d bytes, and has %d.", name, MaxStopBytes, n)
	}
	p.req.Stop = append(p.req.Stop, text)
	return nil
}

func (p *parser) streamOptions(name string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(name, "an object")
	}
	return p.s.object(func(key []byte) *Error {
		if string(key) == "include_usage" && p.s.space() != 'n' {
			return p.boolean(name+".include_usage", &p.req.IncludeUsage)
		}
		_, err := p.s.value()
		return err
	})
}

// conversation reads an id, or an object with one, as the Responses API has both.
func (p *parser) conversation(name string) *Error {
	switch p.s.space() {
	case '"':
		return p.str(name, &p.req.Conversation)
	case '{':
		return p.s.object(func(key []byte) *Error {
			if string(key) == "id" {
				return p.str(name+".id", &p.req.Conversation)
			}
			_, err := p.s.value()
			return err
		})
	}
	return p.mismatch(name, "a string or an object with an id")
}
