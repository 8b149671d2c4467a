package lines

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Handler returns the handler of a log that w writes. Each line is what slog.JSONHandler makes of its record. A record of
// level Warn or above takes what waits to the file before Handle returns.
func (w *Writer) Handler() slog.Handler {
	return handler{Handler: slog.NewJSONHandler(w, nil), to: w, bare: true}
}

// handler is a slog.JSONHandler that writes most records itself.
type handler struct {
	slog.Handler // a *slog.JSONHandler

	to   *Writer
	bare bool // it has no attributes and groups of its own
}

// Handle writes r's line.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.bare || !h.quick(r) {
		if err := h.Handler.Handle(ctx, r); err != nil {
			return err
		}
	}
	if r.Level >= slog.LevelWarn {
		h.to.Flush()
	}
	return nil
}

// WithAttrs is slog.Handler's.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{Handler: h.Handler.WithAttrs(attrs), to: h.to}
}

// WithGroup is slog.Handler's.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{Handler: h.Handler.WithGroup(name), to: h.to}
}

// rooms holds buffers for a line each.
var rooms = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// quick writes r's line where append can, and reports whether it has.
func (h handler) quick(r slog.Record) bool {
	room, ok := rooms.Get().(*[]byte)
	if !ok {
		return false
	}
	line, ok := appendLine((*room)[:0], &r)
	if ok {
		_, _ = h.to.Write(line)
	}
	if cap(line) <= enough {
		*room = line
		rooms.Put(room)
	}
	return ok
}

// appendLine appends the line of a record that has nothing but texts that are plain, whole numbers, durations and truth
// values, as that of a request nearly always has. For others it reports false.
func appendLine(b []byte, r *slog.Record) (line []byte, ok bool) {
	b = append(b, '{')
	if t := r.Time; !t.IsZero() {
		if y := t.Year(); y < 0 || y > 9999 {
			return b, false
		}
		b = append(b, `"time":"`...)
		b = t.AppendFormat(b, time.RFC3339Nano)
		b = append(b, `",`...)
	}
	b = append(b, `"level":"`...)
	b = append(b, r.Level.String()...)
	b = append(b, `","msg":`...)
	b, ok = appendPlain(b, r.Message)
	if !ok {
		return b, false
	}
	r.Attrs(func(a slog.Attr) bool {
		b = append(b, ',')
		if b, ok = appendPlain(b, a.Key); ok {
			b, ok = appendValue(append(b, ':'), a.Value)
		}
		return ok
	})
	return append(b, '}', '\n'), ok
}

// appendValue appends v, or reports false.
func appendValue(b []byte, v slog.Value) ([]byte, bool) {
	switch v.Kind() {
	case slog.KindString:
		return appendPlain(b, v.String())
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10), true
	case slog.KindUint64:
		return strconv.AppendUint(b, v.Uint64(), 10), true
	case slog.KindDuration:
		return strconv.AppendInt(b, int64(v.Duration()), 10), true
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool()), true
	case slog.KindAny, slog.KindFloat64, slog.KindGroup, slog.KindLogValuer, slog.KindTime:
	}
	return b, false
}

// appendPlain appends a text that stands in JSON as it is, or reports false.
func appendPlain(b []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return b, false
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), true
}
