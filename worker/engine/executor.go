package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Seq names one sequence of KV cells in an Executor, 0 ≤ Seq < Caps.MaxSeqs.
type Seq int32

// Executor runs batches on a device. It has no policy and no queue. Only one goroutine may call it.
type Executor interface {
	Caps() Caps
	// Step runs b.KV in order, then one forward pass over b.Items. On ErrNoKV nothing has changed. After ErrAborted the
	// KV cells of the items' positions are undefined: truncate before going on. ErrFatal means that the process must end.
	// The result is valid until the next Step.
	Step(ctx context.Context, b *Batch) (*Result, error)
	Close() error
}

// Vocabulary turns text into tokens and back. Its methods may be called from any goroutine.
type Vocabulary interface {
	// Render turns a chat into the text of the prompt by the model's own template.
	Render(c Chat) (string, error)
	// Tokenize returns the tokens of text. Special tokens in it are recognised when special is true.
	Tokenize(text string, special bool) ([]Token, error)
	// Piece returns the bytes of a token, which may be a part of a UTF-8 character; special tokens have none.
	Piece(t Token) []byte
	// EndsGeneration reports whether the model means to stop by t.
	EndsGeneration(t Token) bool
}

// Part is a piece of output that a Splitter has told apart.
type Part struct {
	Text, Reasoning string
	Call            *ToolCall // without ID
}

// Splitter tells a model's reasoning and tool calls from the rest of its text. It belongs to one choice.
type Splitter interface {
	// Push takes the next text and returns what is certain by now.
	Push(text string) []Part
	// Flush returns the rest when the text has ended, and whether the choice called tools.
	Flush() (rest []Part, called bool)
}

// Embedder is an Executor that makes embeddings. The scheduler calls it as it calls Step.
type Embedder interface {
	// Embed returns a vector of unit length for each input, none of which is longer than Info.ContextTokens.
	Embed(ctx context.Context, inputs [][]Token) ([][]float32, error)
}

// Adapting is an Executor that has adapters. The scheduler calls it as it calls Step, between steps.
type Adapting interface {
	LoadAdapter(a Adapter) error
	UnloadAdapter(name string) error
}

// Loaded is a model that is ready to run.
type Loaded struct {
	Executor   Executor
	Vocabulary Vocabulary
	// Splitter makes the splitter of one choice of a chat; nil means that text is never split.
	Splitter func(c *Chat) Splitter
	Info     Info
	// Warm is how long a step took once the weights had been read and the device was ready; 0: unknown.
	Warm time.Duration
}

// Caps says what an Executor can do and how much.
type Caps struct {
	Device string // for people, such as CPU (AVX512, 1 thread)
	Vocab  int
	// MaxSeqs is the number of sequences; KVTokens the number of KV cells that they share.
	MaxSeqs, KVTokens int
	// MaxStepTokens is the most tokens in one Step.
	MaxStepTokens int
	// KVBytesPerToken is the memory of one cell.
	KVBytesPerToken int
	// AbortMidStep: a Step with a prompt among its items ends soon after its ctx does.
	AbortMidStep bool
	// What an Engine can do for its callers; the conformance suite holds it to each that is claimed.
	Embeddings, Adapters, Logprobs, Tools, JSONObject bool
	// Resumes: an Engine goes on with what another one has made (Request.Resume).
	Resumes bool
}

// KVKind is a kind of change to KV cells.
type KVKind int

// The changes.
const (
	// KVFork makes Dst share the first N cells of Src.
	KVFork KVKind = iota
	// KVTruncate leaves the first N cells of Dst.
	KVTruncate
	// KVDrop frees Dst.
	KVDrop
)

// KVOp is one change to KV cells.
type KVOp struct {
	Kind     KVKind
	Src, Dst Seq
	N        int
}

// Item is a run of tokens of one sequence, starting at position Pos.
type Item struct {
	Seq    Seq
	Pos    int
	Tokens []Token
	// Logits asks for the logits after the last token.
	Logits bool
}

// Batch is the work of one Step.
type Batch struct {
	KV    []KVOp
	Items []Item
	// Adapter is applied to all items; "" is the model itself.
	Adapter string
}

// Result holds one entry for each item, in order.
type Result struct {
	// Logits has Caps.Vocab entries where the item asked for them and is nil elsewhere. It is the device's own memory:
	// read it before the next Step.
	Logits [][]float32
}

// The errors of an Executor.
var (
	// ErrNoKV: too few free cells; the state is unchanged.
	ErrNoKV = errors.New("executor has no free KV cells")
	// ErrAborted: ctx ended inside a step.
	ErrAborted = errors.New("executor step was aborted")
	// ErrFatal: the device or its library is in an unknown state.
	ErrFatal = errors.New("executor is broken")
)

// LoadError is a model that can't be loaded. It is the user's to mend, so it has a reason from the closed set that
// conditions use, and a message with the file, what was expected and what was found.
type LoadError struct {
	// Reason is one of WeightsNotFound, WeightsNotGGUF, WeightsTruncated, WeightsDigestMismatch, WeightsUnsupported.
	Reason  string
	Message string
}

func (e *LoadError) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }
