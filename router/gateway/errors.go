package gateway

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

// Errors that the process around the handler causes.
var (
	// ErrShutdown is the cause with which the process ends the contexts of requests that outlive its drain.
	ErrShutdown = errors.New("gateway: the router is going away")
	// ErrAgain says that an answer begins anew at another worker.
	ErrAgain = errors.New("gateway: the answer begins anew")
	// ErrNotSynced says that the router doesn't know yet which models there are.
	ErrNotSynced = errors.New("gateway: the models are not known yet")
)

// Errors of requests before they become calls.
var (
	errGone      = errors.New("gateway: the client has gone")
	errSlowBody  = errors.New("gateway: the body came too slowly")
	errBody      = errors.New("gateway: the body can't be read")
	errMediaType = errors.New("gateway: the body is not application/json")
	errEncoding  = errors.New("gateway: the body is compressed")
	// errOverloaded: the requests that run fill the memory that there is for them.
	errOverloaded = errors.New("gateway: no memory is left for the request")
	errInternal   = errors.New("gateway: a handler broke")
)

// Kind is what kind of Fault a Generator met.
type Kind int

// The kinds of Fault.
const (
	// NoCapacity: the model has no workers. Loading: it has some, but none in the ring yet.
	NoCapacity Kind = iota + 1
	Loading
	// Busy: the worker's queue is full.
	Busy
	// NoAdapter: none of the workers that were asked has loaded the adapter.
	NoAdapter
	// Invalid: the worker can never run this request. Param may name a parameter, and TooLong is set when prompt and
	// answer don't fit the context.
	Invalid
	// TooLarge: the request has more bytes than a worker takes.
	TooLarge
	// Lost: the worker failed or went away.
	Lost
	// Quarantined: two workers were lost while they worked on this very request.
	Quarantined
	// SlowReader: the client took the answer too slowly.
	SlowReader
	// NoFirstByte and Silent: the worker took too long for the first text, or between two.
	NoFirstByte
	Silent
)

// Fault is why a call has no answer, or only part of one.
type Fault struct {
	Kind Kind
	// Code is a word for programs; empty leaves it to the kind.
	Code string
	// Message is a sentence for the client; it may be empty.
	Message string
	Param   string
	TooLong bool
	// RetryAfter is when to come back; 0 leaves it to the gateway. It is Spread where nothing is to be added to it by chance:
	// those who come back have been spread already.
	RetryAfter time.Duration
	Spread     bool
	// Worker is the pod, where there was one.
	Worker string
	// Err is what happened, for the log.
	Err error
}

// Error says what happened.
func (f *Fault) Error() string {
	if f.Err != nil {
		return fmt.Sprintf("gateway: worker %q: %v", f.Worker, f.Err)
	}
	return "gateway: " + f.Message
}

// reason is what the log says of a fault. What a worker says of an invalid request could quote it, and is left out.
func (f *Fault) reason() string {
	if f.Err == nil || f.Kind == Invalid {
		return ""
	}
	return clip(f.Err.Error())
}

// unknownModelError says that no model has a name, and which have one like it.
type unknownModelError struct {
	name string
	near []string
}

func (e *unknownModelError) Error() string {
	hint := ""
	if len(e.near) > 0 {
		hint = " Did you mean " + strings.Join(e.near, " or ") + "?"
	}
	return fmt.Sprintf("There is no model %q.%s GET /v1/models lists all.", clip(e.name), hint)
}

// unknownTierError says that there is no tier of a name, and which there are.
type unknownTierError struct {
	name  string
	tiers []Tier
}

func (e *unknownTierError) Error() string {
	names := make([]string, len(e.tiers))
	for i, t := range e.tiers {
		names[i] = t.Name
	}
	return fmt.Sprintf("There is no tier %q. There are: %s. Header %s names one.", clip(e.name), strings.Join(names, ", "), telemetry.HeaderTier)
}

// unknownPathError says that nothing is served under a path.
type unknownPathError struct{ method, path string }

func (e *unknownPathError) Error() string {
	return fmt.Sprintf("Nothing is served at %s %s. There are POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models and GET /v1/models/{id}.",
		clip(e.method), clip(e.path))
}

// wrongMethodError says which methods a path has.
type wrongMethodError struct{ method, path, allow string }

func (e *wrongMethodError) Error() string {
	return fmt.Sprintf("%s takes %s, not %s.", clip(e.path), e.allow, clip(e.method))
}

// tooLargeError says how much a body may be.
type tooLargeError struct{ most int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("The body has more than %d bytes, which is the most that this router takes.", e.most)
}

// clip shortens what a client made up.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
