package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// figure is one measurement.
type figure struct {
	Name         string  `json:"name"`
	Milliseconds float64 `json:"milliseconds"`
	Note         string  `json:"note,omitempty"`
}

// report tells what is measured, at once.
type report struct {
	out     io.Writer
	json    string
	start   time.Time
	figures []figure
}

// part is something to measure.
type part struct {
	name string
	run  func(context.Context) error
}

// run does parts one after the other.
func (r *report) run(ctx context.Context, limit time.Duration, parts []part) error {
	for _, p := range parts {
		if err := r.one(ctx, limit, p); err != nil {
			return err
		}
	}
	r.say("all of it took %.0f s", time.Since(r.start).Seconds())
	return nil
}

// one does a part, unless the time is over.
func (r *report) one(ctx context.Context, limit time.Duration, p part) error {
	if passed := time.Since(r.start); passed > limit {
		r.say("left out, after %.0f s: %s", passed.Seconds(), p.name)
		return nil
	}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return ctx.Err()
}

func (r *report) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// figure tells of one, and writes all of them to the file.
func (r *report) figure(name string, milliseconds float64, note string) {
	r.figures = append(r.figures, figure{name, milliseconds, note})
	if note != "" {
		note = "  (" + note + ")"
	}
	r.say("%-50s %12.3f ms%s", name, milliseconds, note)
	if r.json == "" {
		return
	}
	text, err := json.MarshalIndent(r.figures, "", "  ")
	if err == nil {
		err = os.WriteFile(r.json, append(text, '\n'), 0o600)
	}
	if err != nil {
		r.say("the figures can't be written: %v", err)
		r.json = ""
	}
}
