package lines

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// same compares the line of a record with slog's.
func same(t *testing.T, r slog.Record, with func(slog.Handler) slog.Handler) {
	t.Helper()
	var theirs, ours bytes.Buffer
	w := New(&ours, clock.RealClock{})
	for _, h := range []slog.Handler{slog.NewJSONHandler(&theirs, nil), w.Handler()} {
		if err := with(h).Handle(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	w.Close()
	if ours.String() != theirs.String() {
		t.Errorf("line\n%s, slog's is\n%s", ours.String(), theirs.String())
	}
}

func as(h slog.Handler) slog.Handler { return h }

func record(at time.Time, level slog.Level, message string, attrs ...slog.Attr) slog.Record {
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(attrs...)
	return r
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 120_000_000, time.UTC)

// served is as the gateway's line of a request.
func served(path string) slog.Record {
	return record(noon, slog.LevelInfo, "request served",
		slog.String("request_id", "req_0123456789abcdef01234567"), slog.String("method", "POST"), slog.String("path", path),
		slog.Int("status", 200), slog.String("outcome", "ok"), slog.Duration("took", 1234567*time.Nanosecond),
		slog.String("model", "llama-3-8b"), slog.String("worker", "llama-3-8b-worker-0"), slog.Bool("stream", true),
		slog.Duration("first_text", -1), slog.Uint64("prompt_tokens", math.MaxUint64), slog.Uint64("cached_tokens", 0))
}

func TestALineIsTheOneThatSlogWrites(t *testing.T) {
	for name, r := range map[string]slog.Record{
		"of a request":              served("/v1/chat/completions"),
		"without anything":          record(noon, slog.LevelInfo, ""),
		"without a time":            record(time.Time{}, slog.LevelInfo, "m"),
		"in another zone":           record(noon.In(time.FixedZone("", -5*3600-1800)), slog.LevelInfo, "m"),
		"with a monotonic time":     record(time.Now(), slog.LevelInfo, "m"),
		"of a whole second":         record(noon.Truncate(time.Second), slog.LevelInfo, "m"),
		"of a year too far":         record(noon.AddDate(9000, 0, 0), slog.LevelInfo, "m"),
		"of a year before all":      record(noon.AddDate(-3000, 0, 0), slog.LevelInfo, "m"),
		"of a level between":        record(noon, slog.LevelInfo+1, "m"),
		"of a warning":              record(noon, slog.LevelWarn, "m", slog.Int("n", math.MinInt64)),
		"below the level":           record(noon, slog.LevelDebug, "m"),
		"with quotes":               served(`/"a"\b`),
		"with what HTML escapes":    served("/<a>&'"),
		"with control characters":   served("/\n\r\t\b\f\x00\x1f\x7f"),
		"with invalid UTF-8":        served("/\xff\xc3\xed\xa0\x80z"),
		"with line separators":      served("/\u2028\u2029"),
		"with other letters":        served("/é…漢😀\ufffd"),
		"with a message to escape":  record(noon, slog.LevelInfo, "a \"b\"\n"),
		"with a key to escape":      record(noon, slog.LevelInfo, "m", slog.Int("a\"b", 1)),
		"with an empty key":         record(noon, slog.LevelInfo, "m", slog.Int("", 1), slog.String("", "")),
		"with an empty attribute":   record(noon, slog.LevelInfo, "m", slog.Attr{}, slog.Int("a", 1), slog.Attr{}),
		"with a group":              record(noon, slog.LevelInfo, "m", slog.Group("g", slog.Int("a", 1)), slog.Group("empty")),
		"with an error and a float": record(noon, slog.LevelInfo, "m", slog.Any("e", errors.New("<x>")), slog.Float64("f", 1e21)),
		"with a time as value":      record(noon, slog.LevelInfo, "m", slog.Time("t", noon), slog.Any("nil", nil)),
	} {
		t.Run(name, func(t *testing.T) { same(t, r, as) })
	}
}

func TestALineOfALogThatHasAttributesIsTheOneThatSlogWrites(t *testing.T) {
	for name, with := range map[string]func(slog.Handler) slog.Handler{
		"attributes": func(h slog.Handler) slog.Handler { return h.WithAttrs([]slog.Attr{slog.String("pod", "a")}) },
		"a group":    func(h slog.Handler) slog.Handler { return h.WithGroup("g") },
		"both": func(h slog.Handler) slog.Handler {
			return h.WithGroup("g").WithAttrs([]slog.Attr{slog.String("pod", "a")})
		},
	} {
		t.Run(name, func(t *testing.T) { same(t, served("/"), with) })
	}
}

func TestTheLineOfARequestNeedsNoHelpOfSlog(t *testing.T) {
	r := served("/v1/chat/completions")
	if line, ok := appendLine(nil, &r); !ok {
		t.Errorf("%s is left to slog", line)
	}
}

func TestAWarningTakesWhatWaitsWithIt(t *testing.T) {
	for name, c := range map[string]struct {
		log  func(*slog.Logger)
		late bool
	}{
		"a warning":               {func(l *slog.Logger) { l.Warn("w") }, false},
		"an error":                {func(l *slog.Logger) { l.Error("w", "error", errors.New("x")) }, false},
		"one with attributes":     {func(l *slog.Logger) { l.With("a", 1).Warn("w") }, false},
		"one in a group":          {func(l *slog.Logger) { l.WithGroup("g").Warn("w", "a", 1) }, false},
		"what is said by the way": {func(l *slog.Logger) { l.Info("w") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &file{}
			log := slog.New(New(f, clocktesting.NewFakeClock(noon)).Handler())
			log.Info("before")
			c.log(log)
			if n := strings.Count(f.text(), "\n"); (n == 0) != c.late || n == 1 {
				t.Errorf("%d lines are written: %q", n, f.writes)
			}
		})
	}
}

func FuzzLine(f *testing.F) {
	f.Add("/v1/chat/completions", "ok", int64(200), uint64(1), true, int64(0), int8(0))
	f.Add("\"\\\u2028\xff<>&", "é\x7f", int64(-1), uint64(math.MaxUint64), false, int64(math.MaxInt64), int8(4))
	f.Fuzz(func(t *testing.T, a, b string, n int64, u uint64, yes bool, at int64, level int8) {
		same(t, record(time.Unix(0, at).UTC(), slog.Level(level), a, slog.String(b, a), slog.Int64("n", n), slog.String("b", b),
			slog.Uint64("u", u), slog.Bool("yes", yes), slog.Duration("took", time.Duration(n)), slog.String("a", a)), as)
	})
}
