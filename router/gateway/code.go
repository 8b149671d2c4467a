package gateway

import (
	"errors"
	"net/http"
	"time"

	"github.com/ringfleet/ringfleet/router/openai"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes. They are a closed set: a metric has them as its label.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeInvalid   Outcome = "invalid"
	OutcomeNotFound  Outcome = "not_found"
	OutcomeBusy      Outcome = "busy"
	OutcomeNoWorker  Outcome = "no_worker"
	OutcomeUpstream  Outcome = "upstream"
	OutcomeTimeout   Outcome = "timeout"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeShutdown  Outcome = "shutdown"
	OutcomeInternal  Outcome = "internal"
)

// statusGone is logged when nobody is there to get a status.
const statusGone = 499

// answer is an error as a client gets it.
type answer struct {
	status  int
	outcome Outcome
	object  openai.Error
	// retryAfter is when to come back; 0 says nothing. spread is as Fault's.
	retryAfter time.Duration
	spread     bool
}

// code is the only place where an error becomes a status. In a stream that has begun only the object is sent.
func code(err error) answer {
	var object *openai.Error
	var fault *Fault
	if errors.As(err, &object) {
		return answer{status: http.StatusBadRequest, outcome: OutcomeInvalid, object: *object}
	}
	if errors.As(err, &fault) {
		return fault.code()
	}
	if a, ok := codeOfRequest(err); ok {
		return a
	}
	switch {
	case errors.Is(err, errGone):
		return refuse(statusGone, OutcomeCancelled, openai.InvalidRequest, "client_gone", "The client has gone.")
	case errors.Is(err, ErrShutdown):
		return refuse(http.StatusServiceUnavailable, OutcomeShutdown, openai.ServiceUnavailable, "server_shutdown",
			"The router is going away and could not wait for this answer. Send the request again.").retry(time.Second)
	case errors.Is(err, errOverloaded):
		return refuse(http.StatusServiceUnavailable, OutcomeBusy, openai.ServiceUnavailable, "server_is_overloaded",
			"The router holds as many bytes of requests and embeddings as it may. Send the request again when some have ended.").retry(time.Second)
	case errors.Is(err, ErrNotSynced):
		return refuse(http.StatusServiceUnavailable, OutcomeNoWorker, openai.ServiceUnavailable, "router_starting",
			"The router has just started and does not know its models yet.").retry(time.Second)
	}
	return refuse(http.StatusInternalServerError, OutcomeInternal, openai.ServerError, "internal_error",
		"The router met an error of its own. Its log has the request id.")
}

// codeOfRequest knows the errors in a request that are not in its JSON.
func codeOfRequest(err error) (answer, bool) {
	var model *unknownModelError
	var path *unknownPathError
	var tier *unknownTierError
	var method *wrongMethodError
	var large *tooLargeError
	invalid := func(status int, outcome Outcome, code, message string) (answer, bool) {
		return refuse(status, outcome, openai.InvalidRequest, code, message), true
	}
	switch {
	case errors.As(err, &model):
		a, _ := invalid(http.StatusNotFound, OutcomeNotFound, "model_not_found", model.Error())
		a.object.Param = "model"
		return a, true
	case errors.As(err, &tier):
		return invalid(http.StatusBadRequest, OutcomeInvalid, "unknown_tier", tier.Error())
	case errors.As(err, &path):
		return invalid(http.StatusNotFound, OutcomeNotFound, "unknown_url", path.Error())
	case errors.As(err, &method):
		return invalid(http.StatusMethodNotAllowed, OutcomeInvalid, "method_not_allowed", method.Error())
	case errors.As(err, &large):
		return invalid(http.StatusRequestEntityTooLarge, OutcomeInvalid, "request_too_large", large.Error())
	case errors.Is(err, errMediaType):
		return invalid(http.StatusUnsupportedMediaType, OutcomeInvalid, "unsupported_media_type",
			"The body must be sent with Content-Type: application/json.")
	case errors.Is(err, errEncoding):
		return invalid(http.StatusUnsupportedMediaType, OutcomeInvalid, "unsupported_content_encoding",
			"The body must be sent without Content-Encoding.")
	case errors.Is(err, errSlowBody):
		return invalid(http.StatusRequestTimeout, OutcomeInvalid, "request_timeout",
			"The body came too slowly: less than 30 KiB in 30 seconds.")
	case errors.Is(err, errBody):
		return invalid(http.StatusBadRequest, OutcomeInvalid, "unreadable_body", "The body ended too early or is not well-formed HTTP.")
	}
	return answer{}, false
}

// code is what a Fault becomes.
func (f *Fault) code() answer {
	var a answer
	switch f.Kind {
	case NoCapacity:
		a = refuse(http.StatusServiceUnavailable, OutcomeNoWorker, openai.ServiceUnavailable, "no_capacity",
			"The model has no worker now.").retry(5 * time.Second)
	case Loading:
		a = refuse(http.StatusServiceUnavailable, OutcomeNoWorker, openai.ServiceUnavailable, "model_loading",
			"The model's workers are not ready yet.").retry(3 * time.Second)
	case Busy:
		a = refuse(http.StatusTooManyRequests, OutcomeBusy, openai.RateLimit, "slow_down",
			"The model's workers have full queues.").retry(time.Second)
	case NoAdapter:
		a = refuse(http.StatusNotFound, OutcomeNotFound, openai.InvalidRequest, "model_not_found",
			"No worker of the model has loaded the adapter.")
	case Invalid:
		a = refuse(http.StatusBadRequest, OutcomeInvalid, openai.InvalidRequest, openai.CodeInvalidValue,
			"The worker can't run this request.")
		if f.TooLong {
			a.object.Code = "context_length_exceeded"
		}
	case TooLarge:
		a = refuse(http.StatusRequestEntityTooLarge, OutcomeInvalid, openai.InvalidRequest, "request_too_large",
			"The request is larger than a worker takes.")
	case Quarantined:
		a = refuse(http.StatusBadRequest, OutcomeUpstream, openai.InvalidRequest, "request_quarantined",
			"Two workers were lost while they worked on this very request; it is not tried again for a while.")
	case SlowReader:
		a = refuse(http.StatusRequestTimeout, OutcomeCancelled, openai.InvalidRequest, "slow_reader",
			"The answer was taken too slowly: more of it lay unread than the worker keeps.")
	case NoFirstByte:
		a = refuse(http.StatusGatewayTimeout, OutcomeTimeout, openai.ServerError, "first_byte_timeout",
			"The worker sent nothing in the time that the router allows.")
	case Silent:
		a = refuse(http.StatusBadGateway, OutcomeTimeout, openai.ServerError, "idle_timeout",
			"The worker stopped sending before the answer was complete.")
	default:
		a = refuse(http.StatusBadGateway, OutcomeUpstream, openai.ServerError, "worker_lost",
			"The worker was lost before the answer was complete.")
	}
	if f.Message != "" {
		a.object.Message = f.Message
	}
	if f.Code != "" {
		a.object.Code = f.Code
	}
	if f.RetryAfter > 0 && a.retryAfter > 0 {
		a.retryAfter, a.spread = f.RetryAfter, f.Spread
	}
	a.object.Param = f.Param
	return a
}

func refuse(status int, outcome Outcome, kind, code, message string) answer {
	return answer{status: status, outcome: outcome, object: openai.Error{Type: kind, Code: code, Message: message}}
}

func (a answer) retry(d time.Duration) answer {
	a.retryAfter = d
	return a
}

// retrySeconds is the value of Retry-After: never earlier than asked, up to a fifth later by chance so that clients
// don't come back together, and from 1 to 60. A chance of 0 adds nothing.
func retrySeconds(d time.Duration, chance byte) int {
	d += time.Duration(float64(d) * 0.2 * float64(chance) / 255)
	return min(max(int((d+time.Second-1)/time.Second), 1), 60)
}
