package server

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// asked is one request of HTTP/1 as a strict reading of the bytes has it.
type asked struct {
	method, target string
	fields         http.Header // values as they stand on their lines, joined where a line is folded
	body           []byte
	broken         bool // the body isn't whole: it is cut off, or not chunked as it says
	last           bool // nothing behind it is a request: the client says so, or others may read its end differently
}

// strictly reads a client's bytes as RFC 9112 lays them down, until they are no request any more. Of what the standard leaves
// to a recipient it takes the wider choice: a line may end in LF alone, a folded line is joined by a space, equal lengths
// count once, and a chunked body has no other length. A server may read less than that, and never anything else.
func strictly(in []byte) []asked {
	var out []asked
	for {
		in = bytes.TrimLeft(in, "\r\n")
		a, rest, ok := request(in)
		if !ok {
			return out
		}
		out = append(out, a)
		if a.broken || a.last {
			return out
		}
		in = rest
	}
}

func request(in []byte) (a asked, rest []byte, ok bool) {
	first, in, ok := line(in)
	if !ok {
		return a, nil, false
	}
	if first == "PRI * HTTP/2.0" { // the beginning of HTTP/2, which has no fields; in the middle of HTTP/1 a handler may refuse it
		a.fields, _, ok = section(in)
		a.method, a.target, a.last = "PRI", "*", true
		return a, nil, ok && len(a.fields) == 0
	}
	words := strings.Split(first, " ")
	if len(words) != 3 || !token(words[0]) || words[1] == "" || !visible(words[1]) {
		return a, nil, false
	}
	minor, found := strings.CutPrefix(words[2], "HTTP/1.")
	if !found || len(minor) != 1 || minor[0] < '0' || minor[0] > '9' {
		return a, nil, false
	}
	a.method, a.target = words[0], words[1]
	if a.fields, in, ok = section(in); !ok || !hosted(a.fields, minor) {
		return a, nil, false
	}
	a.last = goes(a.fields, minor)
	lengths, coded := a.fields["Content-Length"], a.fields["Transfer-Encoding"]
	n, sound := length(lengths)
	switch {
	case !sound:
		return a, nil, false
	case len(coded) > 0 && minor == "0":
		a.last = true // where it ends nobody can say
		a.body, a.broken = in[:min(n, len(in))], n > len(in)
		return a, nil, true
	case len(coded) > 0:
		if len(coded) != 1 || !strings.EqualFold(coded[0], "chunked") {
			return a, nil, false
		}
		a.last = a.last || len(lengths) > 0
		a.body, rest, a.broken = chunked(in)
		return a, rest, true
	case n > len(in):
		a.body, a.broken = in, true
		return a, nil, true
	}
	a.body = in[:n]
	return a, in[n:], true
}

// line returns the next line without its end. A CR elsewhere makes it none.
func line(in []byte) (text string, rest []byte, ok bool) {
	b, rest, ok := bytes.Cut(in, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	return string(b), rest, ok && !bytes.Contains(b, []byte("\r"))
}

// section reads fields up to the empty line.
func section(in []byte) (http.Header, []byte, bool) {
	fields := http.Header{}
	name := ""
	for {
		l, rest, ok := line(in)
		if !ok || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, nil, false
		}
		in = rest
		if l == "" {
			return fields, in, true
		}
		if l[0] == ' ' || l[0] == '\t' {
			if name == "" {
				return nil, nil, false
			}
			values := fields[name]
			values[len(values)-1] = strings.Trim(values[len(values)-1]+" "+strings.Trim(l, " \t"), " \t")
			continue
		}
		n, v, ok := strings.Cut(l, ":")
		if !ok || !token(n) {
			return nil, nil, false
		}
		name = http.CanonicalHeaderKey(n)
		fields[name] = append(fields[name], strings.Trim(v, " \t"))
	}
}

// hosted says whether the request names its host as it must.
func hosted(fields http.Header, minor string) bool {
	n := len(fields["Host"])
	return n == 1 || n == 0 && minor == "0"
}

// goes says whether the client takes this for the connection's last request.
func goes(fields http.Header, minor string) bool {
	var said []string
	for _, v := range fields["Connection"] {
		for word := range strings.SplitSeq(v, ",") {
			said = append(said, strings.ToLower(strings.Trim(word, " \t")))
		}
	}
	return slices.Contains(said, "close") || minor == "0" && !slices.Contains(said, "keep-alive")
}

// length reads Content-Length; there may be several that are equal.
func length(values []string) (int, bool) {
	if len(values) == 0 {
		return 0, true
	}
	for _, v := range values {
		if v != values[0] || v == "" || strings.Trim(v, "0123456789") != "" {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return int(n), err == nil
}

// chunked reads a chunked body and the fields behind it. What was there before it broke is returned, too.
func chunked(in []byte) (body, rest []byte, broken bool) {
	for {
		head, after, ok := bytes.Cut(in, []byte("\r\n"))
		size, _, _ := bytes.Cut(head, []byte(";"))
		digits := strings.TrimRight(string(size), " \t")
		n, err := strconv.ParseUint(digits, 16, 63)
		if !ok || err != nil || len(digits) > 16 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" || bytes.ContainsAny(head, "\r\n") {
			return body, nil, true
		}
		if n == 0 {
			_, rest, ok := section(after)
			return body, rest, !ok
		}
		if n > uint64(len(after)) {
			return append(body, after...), nil, true
		}
		body = append(body, after[:n]...)
		if in, ok = bytes.CutPrefix(after[n:], []byte("\r\n")); !ok {
			return body, nil, true
		}
	}
}

// token says whether s may be a method or the name of a field.
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// visible says whether s has neither space nor control characters.
func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
}
