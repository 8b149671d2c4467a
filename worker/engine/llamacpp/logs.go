package llamacpp

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hybridgroup/yzma/pkg/llama"
	"golang.org/x/sys/unix"
)

// most is how many error lines are kept for a message, and longest the bytes of a line that is logged.
const most, longest = 4, 2000

// journal gathers the library's text into lines and logs them. The library writes from any thread, parts of a line too.
type journal struct {
	mu     sync.Mutex // guards all but hushed; never held while logging
	log    *slog.Logger
	line   strings.Builder
	level  llama.LogLevel
	failed []string // the first error lines since reset

	// hushed while a step is broken off on purpose, which the library takes for a failure and reports as one.
	hushed atomic.Bool
}

// lines is where the library writes: its callback belongs to the process.
var lines journal

func (j *journal) use(log *slog.Logger) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log = log
}

// reset forgets the error lines.
func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = nil
}

// errors returns the error lines since reset.
func (j *journal) errors() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.failed) == 0 {
		return "it gives no reason"
	}
	return strings.Join(j.failed, "; ")
}

// logged is called by the library with a piece of its log. It must not panic, and it must not keep text.
func logged(level int32, text *byte, _ uintptr) uintptr {
	defer func() { _ = recover() }() // a panic can't pass through C
	if text != nil {
		lines.write(llama.LogLevel(level), unix.BytePtrToString(text))
	}
	return 0
}

// write adds a piece and logs the lines that it completes.
func (j *journal) write(level llama.LogLevel, text string) {
	j.mu.Lock()
	if level != llama.LogLevelContinue {
		if j.line.Len() > 0 { // the last line was not ended
			text = "\n" + text
		}
	}
	log := j.log
	var done []entry
	for part := range strings.Lines(text) {
		rest, ended := strings.CutSuffix(part, "\n")
		if j.line.Len() == 0 && level != llama.LogLevelContinue {
			j.level = level
		}
		if j.line.Len() < longest {
			j.line.WriteString(rest[:min(len(rest), longest-j.line.Len())])
		}
		if ended {
			done = j.end(done)
			if level != llama.LogLevelContinue {
				j.level = level
			}
		}
	}
	j.mu.Unlock()
	if log == nil {
		return
	}
	for _, e := range done {
		level := severity(e.level)
		if j.hushed.Load() {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "llama.cpp reports", "line", e.text)
	}
}

type entry struct {
	level llama.LogLevel
	text  string
}

// end takes the gathered line. Lines of dots are the library's own progress.
func (j *journal) end(done []entry) []entry {
	text := strings.TrimSpace(strings.ToValidUTF8(j.line.String(), "?"))
	j.line.Reset()
	if strings.Trim(text, ".") == "" {
		return done
	}
	if j.level == llama.LogLevelError && len(j.failed) < most {
		j.failed = append(j.failed, text)
	}
	return append(done, entry{j.level, text})
}

// severity maps the library's levels. Its information is for developers.
func severity(level llama.LogLevel) slog.Level {
	switch level {
	case llama.LogLevelError:
		return slog.LevelError
	case llama.LogLevelWarn:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
