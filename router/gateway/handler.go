package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/router/openai"
	"github.com/ringfleet/ringfleet/router/tracing"
)

// Paths of the API.
const (
	pathChat       = "/v1/chat/completions"
	pathEmbeddings = "/v1/embeddings"
	pathModels     = "/v1/models"
)

// exchange is one request and its response.
type exchange struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	id     string
	began  time.Time
	events *events // once the response is a stream
	held   int64   // bytes of Handler.held that are this request's

	// For the log and the figures.
	model, worker string
	resumes       int
	tier          string
	adapter       string // empty: the model itself
	status        int
	outcome       Outcome
	code          string
	why           string // what happened on a worker
	usage         openai.Usage
	final         openai.Usage // of the choices that have ended
	choices       int
	ended         int     // choices that have
	measured      bool    // it counts in the figures
	measure       Measure // nil before the model is known
	texts         int
	firstText     time.Duration // since it began
	lastText      time.Time
}

// ServeHTTP serves one request and logs it. It panics with http.ErrAbortHandler where the client counts as gone, so that the
// server ends the connection: a client that has only closed its own half must not take an empty 200 for the answer.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{h: h, w: w, r: r, rc: http.NewResponseController(w), began: h.cfg.Clock.Now(), outcome: OutcomeOK}
	x.id = h.requestID(r.Header.Get(telemetry.HeaderRequestID))
	defer x.release()
	w.Header().Set(telemetry.HeaderRequestID, x.id)
	if h.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	if r.Header.Get("Expect") != "" {
		// The server keeps the deadline of the connection's last response, and would cut a client that waits for 100 Continue.
		_ = x.rc.SetWriteDeadline(time.Time{})
	}
	if r.ContentLength != 0 {
		x.windowForBody() // also where nobody reads it: the server itself does before it answers
	}
	traced := func(tracing.Request) {}
	if h.cfg.Trace != nil {
		var ctx context.Context
		ctx, traced = h.cfg.Trace(r.Context(), r.Header)
		if ctx != r.Context() {
			x.r = r.WithContext(ctx)
		}
	}
	if err := x.route(); err != nil {
		x.fail(err)
	}
	if x.events != nil {
		x.events.close()
	}
	x.finish()
	x.log()
	traced(x.traced())
	if x.status == statusGone {
		panic(http.ErrAbortHandler) //nolint:forbidigo // nothing else ends a stream of HTTP/2 without an answer, and net/http takes it
	}
}

// traced is what a trace says of the request.
func (x *exchange) traced() tracing.Request {
	operation := "other"
	switch x.r.URL.Path {
	case pathChat:
		operation = "chat"
	case pathEmbeddings:
		operation = "embeddings"
	}
	return tracing.Request{
		Operation: operation, Model: x.model, Outcome: string(x.outcome), Error: x.outcome != OutcomeOK && x.outcome != OutcomeCancelled,
		ID: x.id, Worker: x.worker, Tier: x.tier, Resumes: x.resumes, Status: x.status, FirstText: x.firstText,
		PromptTokens: x.usage.Prompt, CachedTokens: x.usage.Cached, AnswerTokens: x.usage.Completion,
	}
}

// requestID returns the client's own id where it is fit to be one, and otherwise makes one.
func (h *Handler) requestID(own string) string {
	fit := len(own) > 0 && len(own) <= 128
	for i := 0; fit && i < len(own); i++ {
		c := own[i]
		fit = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:/+=@", c) >= 0
	}
	if fit {
		return own
	}
	return "req_" + h.random()
}

// random returns 96 bits as text.
func (h *Handler) random() string {
	var b [12]byte
	if _, err := io.ReadFull(h.cfg.Rand, b[:]); err != nil {
		_, _ = rand.Read(b[:]) // never fails
	}
	return hex.EncodeToString(b[:])
}

// route calls what serves the path. What breaks in it becomes an error.
func (x *exchange) route() (err error) {
	defer func() {
		if v := recover(); v != nil {
			x.h.cfg.Log.Error("a handler broke", "request_id", x.id, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	path := x.r.URL.Path
	switch {
	case path == pathChat:
		return x.only(x.chat, http.MethodPost)
	case path == pathEmbeddings:
		return x.only(x.embed, http.MethodPost)
	case path == pathModels:
		return x.only(x.list, http.MethodGet, http.MethodHead)
	case strings.HasPrefix(path, pathModels+"/") && path != pathModels+"/":
		return x.only(x.get, http.MethodGet, http.MethodHead)
	}
	return &unknownPathError{x.r.Method, path}
}

// only serves these methods.
func (x *exchange) only(serve func() error, methods ...string) error {
	for _, m := range methods {
		if x.r.Method == m {
			return serve()
		}
	}
	allow := strings.Join(methods, ", ")
	x.w.Header().Set("Allow", allow)
	return &wrongMethodError{x.r.Method, x.r.URL.Path, allow}
}

// list serves GET /v1/models.
func (x *exchange) list() error {
	s := x.h.state.Load()
	if s == nil {
		return ErrNotSynced
	}
	return x.write(http.StatusOK, openai.AppendModels(nil, s.list))
}

// get serves GET /v1/models/{id}. The id may hold slashes, escaped or not.
func (x *exchange) get() error {
	id := strings.TrimPrefix(x.r.URL.Path, pathModels+"/")
	m, _, err := x.h.find(id)
	if err != nil {
		return err
	}
	return x.write(http.StatusOK, openai.AppendModel(nil, m.listed))
}

// write sends a whole response. An error means that the client has gone.
func (x *exchange) write(status int, body []byte) error {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.head(status)
	if _, err := x.w.Write(body); err != nil {
		return errGone
	}
	x.sent()
	return nil
}

// sent lets a whole answer go before the log's line about it. HTTP/2 would send a frame more for it.
func (x *exchange) sent() {
	if x.status == http.StatusOK && x.r.ProtoMajor == 1 {
		_ = x.rc.Flush()
	}
}

// Values of headers that many responses share. Nobody changes them.
var (
	typeJSON   = []string{"application/json"}
	typeEvents = []string{"text/event-stream; charset=utf-8"}
	noSniff    = []string{"nosniff"}
	noCache    = []string{"no-cache"}
	noBuffer   = []string{"no"}
)

// head begins a response of JSON.
func (x *exchange) head(status int) {
	x.status = status
	header := x.w.Header()
	header["Content-Type"], header["X-Content-Type-Options"] = typeJSON, noSniff
	_ = x.rc.SetWriteDeadline(x.h.cfg.Clock.Now().Add(writeWindow))
	x.w.WriteHeader(status)
}

// send writes a part of a response that has begun. An error means that the client has gone.
func (x *exchange) send(body []byte) error {
	_ = x.rc.SetWriteDeadline(x.h.cfg.Clock.Now().Add(writeWindow))
	if _, err := x.w.Write(body); err != nil {
		return errGone
	}
	return nil
}

// fail answers an error: by a status, or in a stream that has begun by its last event.
func (x *exchange) fail(err error) {
	// A body that is late ends the context too, though its client is there.
	if cause := gone(x.r.Context()); cause != nil && !errors.Is(err, errSlowBody) {
		err = cause
	}
	a := code(err)
	x.outcome, x.code = a.outcome, a.object.Code
	var fault *Fault
	if errors.As(err, &fault) {
		x.worker, x.why = cmp.Or(fault.Worker, x.worker), fault.reason()
	}
	switch {
	case a.status == statusGone:
		x.status = statusGone
		return
	case x.status != 0 && x.events == nil:
		return // the response has begun, and is not a stream: it can only end early
	case x.events != nil && x.events.fail(&a.object):
		x.status = http.StatusOK
		return
	}
	if a.retryAfter > 0 {
		var chance [1]byte
		if !a.spread {
			_, _ = io.ReadFull(x.h.cfg.Rand, chance[:])
		}
		x.w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(a.retryAfter, chance[0])))
	}
	_ = x.write(a.status, openai.AppendError(nil, &a.object))
}

// gone returns why a request's context has ended: the client has gone, or the process goes.
func gone(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrShutdown):
		return ErrShutdown
	}
	return errGone
}
