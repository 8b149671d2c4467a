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
	// Embed returns one vector for each input, or an *InvalidError where Caps.Embeddings is false or an input can't be
	// run.
	Embed(ctx context.Context, r *EmbedRequest) (*Embeddings, error)
	// Tokenize returns the tokens of a prompt as Generate would run it.
	Tokenize(ctx context.Context, p Prompt) ([]Token, error)
	// LoadAdapter makes requests for a.Name possible, or replaces it; running requests of the old one end first.
	LoadAdapter(ctx context.Context, a Adapter) error
	// UnloadAdapter forgets an adapter after its running requests; requests for it are then an *InvalidError.
	UnloadAdapter(ctx context.Context, name string) error
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
	ID       string
	Prompt   Prompt
	Sampling Sampling
	// Choices is how many outputs are made from one prompt, OpenAI's n. 0 means 1.
	Choices   int
	MaxTokens int // of each choice; 0: as many as the context allows
	// MinTokens is how many tokens a choice makes before it may end by itself or by a stop string.
	MinTokens int
	Stop      []string
	// IgnoreEOS goes on until MaxTokens, whatever the model says; for measurements.
	IgnoreEOS bool
	// Logprobs asks for the logarithm of each token's probability; TopLogprobs, at most 20, for those of the most
	// probable tokens besides.
	Logprobs    bool
	TopLogprobs int
	Format      Format
	// JSONSchema is OpenAI's response_format.json_schema, with Format FormatJSONSchema.
	JSONSchema []byte
	// Priority: requests of a greater one start first and are preempted last.
	Priority int
	// CacheSalt keeps requests of different salts from sharing KV blocks. It is opaque.
	CacheSalt string
	// Adapter is the name of a loaded adapter; "" is the model itself.
	Adapter string
	// Resume is what another engine has made of choice 0 already; nil: nothing.
	Resume *Resume
	// Name is what the caller knows the prompt by.
	Name PromptName
}

// PromptBlockBytes is the length of a block by which callers name prompts.
const PromptBlockBytes = 64

// PromptName is what a caller knows a prompt by: a hash of its whole blocks, how many they are, and the length that they were
// cut from; 0 is theirs. No blocks: it has no name.
type PromptName struct {
	Hash   uint64
	Blocks uint32
	Bytes  uint64
}

// PromptNews says how much of a prompt is in the KV cache. Numbers count up.
type PromptNews struct {
	Hash uint64
	// Held is how many of its Blocks, the first ones, are there; all while a request is Inside, as they will be.
	Blocks, Held uint32
	Number       uint64
	Inside       bool
	// Heir is the hash of another prompt of which as much is there. From here on only that one is followed; 0: none.
	Heir uint64
}

// Follower is an Engine that follows named prompts in its KV cache.
type Follower interface {
	// Prompts returns what there is to tell that has the number from or a greater one: of each prompt the latest, at most so
	// many, in order; and the number to go on from. What has the number missed or a smaller one may not be told any more: who
	// has not heard all up to there knows nothing of the cache.
	Prompts(from uint64, most int) (news []PromptNews, next, missed uint64)
}

// Numbered is a Stream of a Follower's.
type Numbered interface {
	// PromptNumber is the number of the news that its prompt came; 0: it is not followed.
	PromptNumber() uint64
}

// Format constrains the output.
type Format string

// The formats.
const (
	FormatText Format = ""
	// FormatJSONObject: the output is one JSON object.
	FormatJSONObject Format = "json_object"
	// FormatJSONSchema: the output is JSON that Request.JSONSchema describes.
	FormatJSONSchema Format = "json_schema"
)

// Sampling says how the next token is chosen. The zero value of a field but Temperature means "off".
type Sampling struct {
	// Temperature 0 is greedy.
	Temperature float64
	// TopP in (0, 1] keeps the smallest set of tokens whose probabilities reach it; TopK the so many most probable
	// tokens; MinP in [0, 1] those at least so probable relative to the most probable one.
	TopP float64
	TopK int
	MinP float64
	// PresencePenalty and FrequencyPenalty, in [-2, 2], are subtracted from the logit of a token that the output has, once
	// and once per occurrence. RepetitionPenalty > 0 divides positive and multiplies negative logits of tokens that prompt
	// or output have; 0 and 1 are off.
	PresencePenalty, FrequencyPenalty, RepetitionPenalty float64
	// LogitBias is added to logits, in [-100, 100]. -100 forbids a token, 100 forces it.
	LogitBias map[Token]float32
	// Seed makes choices repeatable on equal batch shapes.
	Seed uint64
}

// Adapter is a LoRA adapter: a small change of the weights that has a name.
type Adapter struct {
	Name string
	Path string // GGUF for llama.cpp
}

// EmbedRequest asks for the embeddings of some inputs.
type EmbedRequest struct {
	ID     string
	Inputs []Prompt // Text or Tokens
}

// Embeddings holds a vector of unit length for each input.
type Embeddings struct {
	Vectors      [][]float32
	PromptTokens int
}

// Stream is the output of one request.
type Stream interface {
	// PromptTokens is the length of the prompt, known from the start.
	PromptTokens() int
	// Next blocks for the next chunk. After a chunk with a finish reason for every choice it returns io.EOF.
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
	// FinishToolCalls: the model calls tools and waits for what they return.
	FinishToolCalls FinishReason = "tool_calls"
)

// Chunk is the next piece of one choice's output. Text, Reasoning and arguments hold whole UTF-8 characters only.
type Chunk struct {
	Choice    int // 0 ≤ Choice < Request.Choices
	Text      string
	Reasoning string // the model's thinking where its template marks it
	ToolCalls []ToolCall
	Tokens    []Token
	Logprobs  []Logprob // one for each of Tokens, where asked for
	Finish    FinishReason
	Usage     Usage // of this choice; set with Finish
}

// ToolCall is the next piece of a call: the first of an index has ID and Name, and the pieces of Arguments, joined, are
// JSON.
type ToolCall struct {
	Index     int // of the call in its choice, from 0
	ID, Name  string
	Arguments string
}

// Logprob is a token, its bytes, and the natural logarithm of its probability before temperature and filters.
type Logprob struct {
	Token   Token
	Bytes   []byte
	Logprob float64
	Top     []Logprob // the most probable tokens, best first; their Top is nil
}

// Usage counts the tokens of a choice. Cached of the Prompt tokens were not computed: their KV cells were there.
type Usage struct {
	Prompt, Completion, Cached int
}

// Stats says how busy an engine is, and what it has done since it started. A nil pointer is an unknown figure, never zero.
type Stats struct {
	Running, Waiting, MaxSequences int
	KVBlockTokens                  int
	KVBlocksTotal, KVBlocksUsed    *int64
	KVBlocksCached                 *int64
	PrefillPerSecond               *float64 // tokens per second over the last ten seconds in which there was work
	DecodePerSecond                *float64
	RequestIDs                     []string // at most 1024

	// Since the start: prompt tokens that were looked up in and found in the cache, preempted requests, evicted blocks.
	CacheQueries, CacheHits *int64
	Preemptions, Evictions  *int64
	// Backlog is how many tokens of prompts that are inside are still to be computed, Progress how many of prompts and
	// outputs were computed since the start.
	Backlog, Progress *int64
	Adapters          []string // names of the loaded ones, sorted
}

// The errors of an Engine.
var (
	// ErrDraining: no new requests are taken.
	ErrDraining = errors.New("engine drains: it takes no new requests")
	// ErrBusy: the queue is full.
	ErrBusy = errors.New("engine's queue is full")
	// ErrClosed: the engine was closed under the request.
	ErrClosed = errors.New("engine is closed")
	// ErrLost: the engine's process ended at work on the request, or the connection to it broke. It gave no answer of its own.
	ErrLost = errors.New("the engine was lost at work")
	// ErrNotLoaded: no model is loaded, or it was lost before the request reached it. No work was done, so no stream ends
	// with it.
	ErrNotLoaded = errors.New("the model is not loaded")
	// ErrNoResume: this engine can't go on with what another one has made. No work was done.
	ErrNoResume = errors.New("the engine can't go on with this output")
	// ErrSlowReader ends a request whose reader leaves too much of its output unread. That is the reader's doing: the engine
	// is well.
	ErrSlowReader = errors.New("request was cancelled: its reader is too slow")
)

// CodeContextLength is the code of a request whose prompt and output are longer than the model's context.
const CodeContextLength = "context_length_exceeded"

// InvalidError is a request that can never run here.
type InvalidError struct {
	// Field is the request's field as OpenAI names it, such as messages or max_tokens.
	Field string
	// Code is OpenAI's error code where there is one, such as CodeContextLength.
	Code string
	// Message says what is wrong, with the numbers.
	Message string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Message) }
