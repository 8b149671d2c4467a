// Package engine is the contract between the worker and whatever runs a model. It has two levels: an Engine takes whole
// requests, and is what the worker's server sees; an Executor takes batches and has no policy, and is driven by one
// goroutine of package scheduler, which makes an Engine of it. The package decides nothing and runs nothing.
package engine

import (
	"context"
	"errors"
	"fmt"
)

// Token is an index into a model's vocabulary.
type Token int32

// Engine serves whole requests. Its methods may be called from any goroutine.
type Engine interface {
	// Info describes the loaded model.
	Info() Info
	// Generate queues a request. Ending ctx cancels it at any stage. Errors are of this package or wrap them.
	Generate(ctx context.Context, r *Request) (Stream, error)
	// Tokenize returns the tokens of a prompt as Generate would run it.
	Tokenize(ctx context.Context, p Prompt) ([]Token, error)
	// Stats says how busy the engine is now.
	Stats() Stats
	// Health returns why the engine can't serve, or nil.
	Health(ctx context.Context) error
	// Drain refuses new requests with ErrDraining and returns when none runs or ctx ends.
	Drain(ctx context.Context) error
	// Close ends what still runs with ErrClosed and frees everything.
	Close() error
}

// Info describes a loaded model.
type Info struct {
	// Model is the architecture and size as the weights describe them, for people.
	Model string
	// ContextTokens is the most tokens that one request may hold, prompt and output together.
	ContextTokens int
	// Vocab is the number of tokens in the vocabulary.
	Vocab int
	Caps  Caps
}

// Prompt is what a request starts from: exactly one field is set.
type Prompt struct {
	// Chat is rendered by the model's own chat template.
	Chat *Chat
	// Text is tokenised as it stands; special tokens in it are recognised.
	Text string
	// Tokens run as they stand.
	Tokens []Token
}

// Chat holds the JSON arrays `messages` and `tools` of a chat request, byte for byte as the client sent them.
type Chat struct {
	Messages []byte
	Tools    []byte
}

// Request is one request to an Engine.
type Request struct {
	ID        string
	Prompt    Prompt
	Sampling  Sampling
	MaxTokens int // 0: as many as the context allows
	Stop      []string
}

// Sampling says how the next token is chosen.
type Sampling struct {
	// Temperature 0 is greedy.
	Temperature float64
	// TopP in (0, 1] keeps the smallest set of tokens whose probabilities reach it.
	TopP float64
	// Seed makes choices repeatable on equal batch shapes.
	Seed uint64
}

// Stream is the output of one request.
type Stream interface {
	// PromptTokens is the length of the prompt, known from the start.
	PromptTokens() int
	// Next blocks for the next chunk. After a chunk with a finish reason it returns io.EOF.
	Next() (Chunk, error)
	// Close cancels the request if it still runs. It may be called more than once.
	Close() error
}

// FinishReason is why generation ended.
type FinishReason string

// The reasons; the empty one means that generation goes on.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
)

// Chunk is the next piece of output. Text holds whole UTF-8 characters only.
type Chunk struct {
	Text   string
	Tokens []Token
	Finish FinishReason
	Usage  Usage // set with Finish
}

// Usage counts the tokens of a request.
type Usage struct {
	Prompt, Completion, Cached int
}

// Stats says how busy an engine is. A nil pointer is an unknown figure, never zero.
type Stats struct {
	Running, Waiting, MaxSequences int
	KVBlockTokens                  int
	KVBlocksTotal, KVBlocksUsed    *int64
	KVBlocksCached                 *int64
	PrefillPerSecond               *float64 // tokens per second over the last ten seconds in which there was work
	DecodePerSecond                *float64
	RequestIDs                     []string // at most 1024
}

// The errors of an Engine.
var (
	// ErrDraining: no new requests are taken.
	ErrDraining = errors.New("engine drains: it takes no new requests")
	// ErrBusy: the queue is full.
	ErrBusy = errors.New("engine's queue is full")
	// ErrClosed: the engine was closed under the request.
	ErrClosed = errors.New("engine is closed")
)

// InvalidError is a request that can never run here.
type InvalidError struct {
	// Field is the request's field as OpenAI names it, such as messages or max_tokens.
	Field string
	// Message says what is wrong, with the numbers.
	Message string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Message) }
