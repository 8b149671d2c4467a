package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/worker/weights/egress"
)

// web sends requests to servers that speak plain HTTP semantics: hubs, web servers, registries.
type web struct {
	send func(*http.Request) (*http.Response, error)
	now  func() time.Time // for Retry-After with a date
}

// do sends a request. A failure to get any answer is Unreachable, or Forbidden by our own rules.
func (w web) do(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", agent)
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := w.send(r) //nolint:bodyclose // the caller's
	if err != nil {
		return nil, failure(r.Context(), r.URL, err)
	}
	return resp, nil
}

// failure makes an *Error of a request that got no answer.
func failure(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var forbidden *egress.ForbiddenError
	if errors.As(err, &forbidden) {
		return refuse(Forbidden, "%s can't be fetched: %s", egress.Shorten(u), forbidden.Says)
	}
	return refuse(Unreachable, "%s can't be reached: %s", egress.Shorten(u), innermost(err))
}

// innermost returns the message of err without the URLs that the standard library puts in front: they may be signed ones
// of a redirect.
func innermost(err error) string {
	for {
		var u *url.Error
		if !errors.As(err, &u) {
			return short(err.Error())
		}
		err = u.Err
	}
}

// status makes an *Error of an answer that is no success. It closes the body.
func (w web) status(resp *http.Response) *Error {
	defer resp.Body.Close()
	asked, answered := resp.Request.URL, resp.Request.URL
	for r := resp.Request.Response; r != nil; r = r.Request.Response {
		asked = r.Request.URL
	}
	says := fmt.Sprintf("%s answers %s", egress.Shorten(asked), resp.Status)
	if asked != answered {
		says = fmt.Sprintf("%s leads to %s, which answers %s", egress.Shorten(asked), answered.Host, resp.Status)
	}
	e := &Error{Kind: Unusable, Says: says}
	switch c := resp.StatusCode; {
	case c == http.StatusUnauthorized, c == http.StatusForbidden:
		e.Kind = Unauthorized
		if asked != answered {
			e.Kind = Unreachable // the signature of a redirect is out of date: the next attempt gets another
		}
	case c == http.StatusNotFound, c == http.StatusGone:
		e.Kind = NotFound
	case c == http.StatusPreconditionFailed, c == http.StatusRequestedRangeNotSatisfiable:
		e.Kind = Changed
	case c == http.StatusTooManyRequests:
		e.Kind = Limited
	case c == http.StatusRequestTimeout, c == http.StatusTooEarly, c >= 500:
		e.Kind = Unreachable
	}
	if e.Temporary() {
		e.After = retryAfter(resp.Header.Get("Retry-After"), w.now())
	}
	return e
}

// retryAfter reads seconds or a date; 0 where there is neither, or it is past.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// part asks for the bytes [from, to) of f. The answer's body is exactly that long.
func (w web) part(r *http.Request, f File, from, to int64) (*http.Response, error) {
	r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	resp, err := w.do(r)
	if err != nil {
		return nil, err
	}
	if err := w.judge(resp, f, from, to); err != nil {
		resp.Body.Close()
		return nil, err
	}
	resp.Body = &part{body: resp.Body, n: to - from}
	return resp, nil
}

// judge says whether resp is what was asked for.
func (w web) judge(resp *http.Response, f File, from, to int64) error {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		got, err := contentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			return refuse(Unusable, "%s: %s", f.Name, err)
		}
		if got.total >= 0 && got.total != f.Bytes {
			return refuse(Changed, "%s has %d bytes, expected %d", f.Name, got.total, f.Bytes)
		}
		if got.from != from || got.to != to {
			return refuse(Unusable, "%s: asked for bytes %d to %d, got %d to %d", f.Name, from, to, got.from, got.to)
		}
		return nil
	case http.StatusOK:
		if resp.ContentLength >= 0 && resp.ContentLength != f.Bytes {
			return refuse(Changed, "%s has %d bytes, expected %d", f.Name, resp.ContentLength, f.Bytes)
		}
		if from != 0 || to != f.Bytes {
			return refuse(NoRanges, "%s is sent whole only", f.Name)
		}
		return nil
	}
	return w.status(resp)
}

// span is what a Content-Range says: bytes [from, to) of total, which is -1 where it isn't said.
type span struct{ from, to, total int64 }

func contentRange(v string) (span, error) {
	bad := fmt.Errorf("the header Content-Range %q makes no sense", short(v))
	rest, ok := strings.CutPrefix(v, "bytes ")
	bounds, total, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(bounds, "-")
	if !ok || !ok2 || !ok3 {
		return span{}, bad
	}
	a, err1 := strconv.ParseInt(first, 10, 64)
	b, err2 := strconv.ParseInt(last, 10, 64)
	t := int64(-1)
	var err3 error
	if total != "*" {
		t, err3 = strconv.ParseInt(total, 10, 64)
	}
	if errors.Join(err1, err2, err3) != nil || a < 0 || b < a || t != -1 && t <= b || b == 1<<63-1 {
		return span{}, bad
	}
	return span{a, b + 1, t}, nil
}

// drain reads a little of what is left, so that the connection can be used again, and closes.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}
