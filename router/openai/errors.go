package openai

import "fmt"

// Types of errors, as OpenAI's clients know them.
const (
	InvalidRequest     = "invalid_request_error"
	RateLimit          = "rate_limit_error"
	ServiceUnavailable = "service_unavailable_error"
	ServerError        = "server_error"
)

// Codes of errors in requests. Package gateway has those of everything else.
const (
	CodeInvalidJSON          = "invalid_json"
	CodeInvalidType          = "invalid_type"
	CodeInvalidValue         = "invalid_value"
	CodeMissing              = "missing_required_parameter"
	CodeDuplicate            = "duplicate_parameter"
	CodeUnsupportedParameter = "unsupported_parameter"
)

// Error is OpenAI's error object. Param and Code are null on the wire when empty; all four keys are always there.
type Error struct {
	// Message is a sentence for people.
	Message string
	// Type is one of the types above.
	Type string
	// Param is the parameter that is wrong, as in messages[2].content.
	Param string
	// Code is a word for programs.
	Code string
}

// Error returns the message with its parameter.
func (e *Error) Error() string {
	if e.Param == "" {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Code, e.Param, e.Message)
}

// in names the parameter where the error doesn't yet.
func (e *Error) in(param string) *Error {
	if e != nil && e.Param == "" {
		e.Param = param
	}
	return e
}

// invalid is an error in one parameter.
func invalid(code, param, format string, args ...any) *Error {
	return &Error{Type: InvalidRequest, Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// wrongType says what a parameter must be and what it is.
func wrongType(param, want, got string) *Error {
	return invalid(CodeInvalidType, param, "%s must be %s, not %s.", param, want, got)
}

// AppendError appends the body of an error response: {"error":{…}}.
func AppendError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	return append(dst, `}}`...)
}
