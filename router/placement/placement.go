// Package placement decides which worker a request goes to. A Board holds, for each model, an immutable view of its
// workers and what this router knows of their work: what it has sent there itself and what they report. Place makes a
// snapshot of plain numbers of that, lets a Policy choose among the workers that may take the request, and counts the
// request as that worker's from then on. The package calls no worker, reads no clock and never waits: who is in the ring
// is package heartbeat's verdict, whether a request may start package admission's, and what to do when nobody can take
// it the caller's.
package placement

import (
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// Worker is a candidate of a model.
type Worker struct {
	Pod      string // name; the member of the ring, as it outlives restarts of the container
	Address  string // host:port of its gRPC server
	Instance string // its engine process; another one has nothing of what this one had
	Revision string
	Loaded   bool // says that it has loaded the model
	InRing   bool // may take requests
	Suspect  bool // has just refused one: taken only when nobody else is left
	// Ejected is this router's own verdict after failures: taken only when nobody else is left, suspects included. The
	// worker stays a member of the ring.
	Ejected bool
	// Since is when it came into the ring with this instance: the begin of its slow start. Zero: it has none.
	Since time.Time
	// Weight is its number of points on the ring, and its share of the requests, in per cent of the usual; 0 means 100.
	Weight int
	// Resumes says that it can go on with an answer that another worker has begun.
	Resumes bool
}

// Process is one engine process of a pod; without an Instance, each that the pod may have.
type Process struct{ Pod, Instance string }

// is reports whether w is meant.
func (p Process) is(w *Worker) bool {
	return p.Pod == w.Pod && (p.Instance == "" || p.Instance == w.Instance)
}

// Load is what a worker reports of its work. What is absent is unknown.
type Load struct {
	// Running and Waiting are requests that hold a sequence and that wait for one; Seats is how many may run together, 0
	// unknown.
	Running, Waiting, Seats int
	// KVTotal is how many tokens its KV cache has room for, KVUsed how many running requests hold.
	KVTotal, KVUsed *uint64
	// Backlog is the tokens of running and waiting requests' prompts that are still to be computed.
	Backlog *uint64
	// Prefill and Decode are tokens a second, of all requests together.
	Prefill, Decode *float64
	// Prompts are those that it has accepted since its last report, whichever router sent them, and with its first one
	// those that it remembers; oldest first, at most 1024. With Exact it numbers them, also tells what is there of those that no
	// request inside has, and nothing goes out of its cache unsaid: what is held is not guessed. Who has not heard all up to the
	// number Missed knows nothing of its cache.
	Prompts []Prompt
	Exact   bool
	Missed  uint64
	// RequestIDs are those that run or wait, at most 1024.
	RequestIDs []string
	// Adapters are those that it has loaded, sorted; nil: unknown. With 256 there may be more. The board keeps the slice.
	Adapters []string
}

// Request is what decides where a request goes.
type Request struct {
	ModelUID string
	// RequestID is the one that the worker is told and reports.
	RequestID string
	// Adapter is the one that the request needs; empty: none.
	Adapter string
	// Key is the affinity key: where the walk on the ring begins.
	Key []byte
	// Chain is the prompt's blocks in the index of prefixes. It must not change any more.
	Chain prefix.Chain
	// PromptBytes is the length of the prompt's text. The board estimates tokens from it.
	PromptBytes int
	// PromptTokens is the length of the prompt where it is known; else 0.
	PromptTokens uint32
	// MaxTokens bounds an answer; 0: it has no bound.
	MaxTokens uint32
	// Choices is how many answers are made of the prompt, each up to MaxTokens; 0 means 1.
	Choices int
	// Exclude are those that must not get it: they have been tried. A pod whose process is another one now may.
	Exclude []Process
	// Resume says that the answer has begun elsewhere, so that only workers can take it that go on with such ones.
	Resume bool
}

// choices is how many answers are asked for.
func (q *Request) choices() int { return max(1, q.Choices) }

// Result is how a request ended.
type Result struct {
	// Answered: it ended by a finish, and the counts are what the worker said. Else they count for nothing.
	Answered bool
	// PromptTokens is the length of the whole prompt, CachedTokens the part of it that the worker had already.
	PromptTokens, CachedTokens uint32
	// CompletionTokens is the length of the answer, of all choices together.
	CompletionTokens uint32
}
