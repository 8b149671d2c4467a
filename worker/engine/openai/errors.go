package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// ErrStalled ends requests of an engine that made no token for the stall time.
var ErrStalled = errors.New("the engine made no token for too long")

// errSlowReader ends a request of whose output more than maxUnread lies unread.
var errSlowReader = fmt.Errorf("%w: more than %d KiB of its output lay unread", engine.ErrSlowReader, maxUnread>>10)

const (
	maxErrorBody = 64 << 10
	maxMessage   = 512
)

// serverError is an error as the servers write them.
type serverError struct {
	status  int
	message string // may quote the prompt: for the caller's eyes only, never for a log
	kind    string
	param   string
	code    string
}

// parseError reads the four shapes that there are: an object in "error", a string in it, the object alone, and FastAPI's
// "detail".
func parseError(data []byte) *serverError {
	type object struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Param   string          `json:"param"`
		Code    json.RawMessage `json:"code"` // a number or a word
	}
	var outer struct {
		object
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	_ = json.Unmarshal(data, &outer) // what can't be read says nothing
	o := outer.object
	if json.Unmarshal(outer.Error, &o) != nil {
		_ = json.Unmarshal(outer.Error, &o.Message)
	}
	if o.Message == "" && len(outer.Detail) > 0 && json.Unmarshal(outer.Detail, &o.Message) != nil {
		o.Message = string(outer.Detail)
	}
	e := &serverError{message: o.Message, kind: word(o.Type), param: word(o.Param)}
	if json.Unmarshal(o.Code, &e.status) != nil {
		_ = json.Unmarshal(o.Code, &e.code)
		e.code = word(e.code)
	}
	return e
}

var identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.]{0,63}$`)

// word returns s if it is a name and can hold no text of a request.
func word(s string) string {
	if identifier.MatchString(s) {
		return s
	}
	return ""
}

func (e *serverError) busy() bool {
	switch e.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout:
		return true
	}
	return false
}

// long tells a prompt that the context can't hold, in the words of vLLM, SGLang and llama-server.
var long = regexp.MustCompile(`(?i)maximum context length|longer than the model's context|exceeds? the (available |maximum |model's )*context|` +
	`max_model_len|context window|longer than the maximum model length|maximum (model|input) length`)

func (e *serverError) tooLong() bool {
	return e.code == engine.CodeContextLength || e.kind == "exceed_context_size_error" || long.MatchString(e.message)
}

// refusal is the error of an answer that is none of 2xx. Field is what the request's prompt is called.
func refusal(r *http.Response, field, adapter string) error {
	data, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBody)) // a broken body leaves the status
	e := parseError(data)
	e.status = r.StatusCode
	return e.err(field, adapter)
}

// err is e as the worker's errors have it. Only an *engine.InvalidError, which goes to the caller alone, has its text.
func (e *serverError) err(field, adapter string) error {
	switch {
	case e.busy():
		return fmt.Errorf("%w: it answered %d", engine.ErrBusy, e.status)
	case e.status == http.StatusNotFound && adapter != "":
		return noAdapter(adapter)
	case e.tooLong() && e.status < 500:
		return &engine.InvalidError{Field: field, Code: engine.CodeContextLength, Message: e.told()}
	}
	switch e.status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		if p := strings.TrimPrefix(e.param, "body."); known(p) {
			field = p
		}
		return &engine.InvalidError{Field: field, Code: e.code, Message: e.told()}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return &missingError{e.status}
	}
	return fmt.Errorf("it answered %d%s", e.status, (&serverError{kind: e.kind}).label())
}

func noAdapter(name string) error {
	return &engine.InvalidError{Field: "model", Code: "model_not_found", Message: fmt.Sprintf("the adapter %q is not loaded", name)}
}

// missingError is a path, or a model, that the server does not have.
type missingError struct{ status int }

func (e *missingError) Error() string { return fmt.Sprintf("it answered %d", e.status) }

func isMissing(err error) bool {
	var m *missingError
	return errors.As(err, &m)
}

func isInvalid(err error) bool {
	var i *engine.InvalidError
	return errors.As(err, &i)
}

// known says whether a parameter is one of OpenAI's, as clients know them.
func known(param string) bool {
	switch param {
	case "messages", "prompt", "tools", "max_tokens", "max_completion_tokens", "stop", "temperature", "top_p", "top_k", "min_p",
		"seed", "logit_bias", "logprobs", "top_logprobs", "response_format", "presence_penalty", "frequency_penalty", "input":
		return true
	}
	return false
}

// told is the message, bounded.
func (e *serverError) told() string {
	m := strings.ToValidUTF8(e.message, "")
	if m == "" {
		return fmt.Sprintf("the engine refuses it with %d", e.status)
	}
	if len(m) > maxMessage {
		m = strings.ToValidUTF8(m[:maxMessage], "") + "…"
	}
	return m
}
