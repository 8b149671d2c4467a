// Package gateway is the router's front: HTTP in, JSON or server-sent events out. It reads and judges a request, names
// its conversation, hands it to a Generator, and turns what comes back, or the error, into what OpenAI's clients expect.
// It never picks a worker and never retries a stream of which a byte was sent; no header of a client goes further.
package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
	"github.com/ringfleet/ringfleet/router/tracing"
)

// Generator runs requests on workers.
type Generator interface {
	// Generate starts a call and waits for the first part of its answer; until that is there it may try another worker.
	// Ending ctx ends the call everywhere. Errors are of type *Fault, or ctx's.
	Generate(ctx context.Context, c *Call) (Stream, error)
	// Embed runs a call to its end; it may try another worker. Ending ctx ends the call. Errors are as Generate's.
	Embed(ctx context.Context, c *Call) (*Embeddings, error)
	// Waits says what a model's requests wait for while none of its workers takes any: one line for people. It is empty
	// when one does.
	Waits(modelUID string) string
}

// Stream is the output of one call.
type Stream interface {
	// Next waits for the next event. The last one is the finish of the last choice. Errors are of type *Fault, or ctx's; for
	// calls that are not streamed also ErrAgain: the answer begins anew, and what came before is void.
	Next() (Event, error)
	// Worker is the pod that answers now, Reason why it was chosen, in one line of visible ASCII.
	Worker() string
	Reason() string
	// Attempts is how many workers were asked, that one included, and Resumes how many went on with an answer.
	Attempts() int
	Resumes() int
	// Close ends the call where it still runs.
	Close()
}

// Call is one request for a worker.
type Call struct {
	// ModelUID is the model's, RequestID the client request's: calls that belong to one share it.
	ModelUID  string
	RequestID string
	// Adapter is the name of the model's adapter that is asked for; empty for the model itself.
	Adapter string
	// Tier is the class of the request, and Tenant whose it is, for fairness within a tier. Greater priorities go first.
	Tier     string
	Tenant   string
	Priority int32
	// Salt keeps what workers cache of this request from requests with another one.
	Salt string
	// Deadline is when the client gives up waiting for a first byte; zero when that is not known.
	Deadline time.Time
	// Key says which conversation this is: equal keys want the same worker.
	Key []byte
	// FirstByte is how long the first text, or the embeddings, may take, Idle how long any later text.
	FirstByte time.Duration
	Idle      time.Duration

	// Chat or Embedding is what the client asks for. The byte slices of a chat are parts of the request's body.
	Chat      *openai.ChatRequest
	Embedding *openai.EmbeddingRequest
}

// Event is the next part of an answer: a piece of one choice, or its end.
type Event struct {
	// PromptTokens is set once, in the first event.
	PromptTokens uint32
	// Delta is whole characters, made of that many tokens. Its Choice holds for Finish too.
	Delta  openai.Delta
	Tokens int
	// Finish is set in the last event of each choice, and Usage, the choice's own, with it.
	Finish openai.FinishReason
	Usage  openai.Usage
}

// shows reports whether a client sees anything of the event's delta.
func (e *Event) shows() bool {
	d := &e.Delta
	return d.Text != "" || d.Reasoning != "" || len(d.ToolCalls) > 0 || len(d.Logprobs) > 0
}

// Measure takes the figures of one request. Its methods are called by one goroutine at a time.
type Measure interface {
	// FirstToken is the time from the request's arrival to its first text, NextToken from one text to the next.
	FirstToken(time.Duration)
	NextToken(time.Duration)
	// Finished ends it.
	Finished(outcome Outcome, took time.Duration, usage openai.Usage)
}

// Config is what a Handler needs. All fields are required.
type Config struct {
	Clock clock.WithDelayedExecution
	// Rand makes ids and spreads the times at which clients come back.
	Rand io.Reader
	// Log gets one line per request: who and how long, never what was said.
	Log *slog.Logger
	// MaxBodyBytes bounds a request's body.
	MaxBodyBytes int64
	// MaxBodyBytesTotal bounds the memory of all bodies together, with the inputs' copies and the answers of requests for
	// embeddings. Each is held until its request ends. MostHeld is the least that serves every request.
	MaxBodyBytesTotal int64
	// Measure begins the figures of a request to a model, or to "unknown".
	Measure   func(model string) Measure
	Generator Generator
	// Trace begins the trace of a request by its headers, and returns its context and what ends the trace. Nil: there is
	// none.
	Trace func(ctx context.Context, h http.Header) (context.Context, func(tracing.Request))
}

// UnknownModel stands in figures for every name that no model has.
const UnknownModel = "unknown"

// Handler serves the API. It is an http.Handler.
type Handler struct {
	cfg      Config
	state    atomic.Pointer[State]
	draining atomic.Bool
	held     atomic.Int64 // bytes of Config.MaxBodyBytesTotal
}

// New returns a Handler that answers 503 until SetState.
func New(cfg Config) *Handler { return &Handler{cfg: cfg} }

// SetState makes s what requests see from now on.
func (h *Handler) SetState(s *State) { h.state.Store(s) }

// Drain makes every response ask its client for another connection, so that the next request meets another router.
func (h *Handler) Drain() { h.draining.Store(true) }
