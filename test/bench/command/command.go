// Package command is what the commands of several benches have in common: flags, a time and a folder to run in, pauses, and the
// parts that a command plays as a child of itself. It measures nothing.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/repo"
)

// Flags are those of benches whose runs are long.
type Flags struct {
	// Only names the parts that were asked for, separated by commas; empty means all.
	Only string
	// Quick asks for a run that shows no more than that everything works.
	Quick bool
	// Update asks for what was measured to be written into the documentation, too.
	Update bool
	// Most is how long all may take.
	Most time.Duration
}

// Bind adds them to s. The others are what the help says of a bench's parts, of a quick run and of the documentation, and how
// long all may take where nobody says it.
func (f *Flags) Bind(s *flag.FlagSet, parts, quick, page string, most time.Duration) {
	s.StringVar(&f.Only, "only", "", "only these "+parts)
	s.BoolVar(&f.Quick, "quick", false, quick+", to see that everything works")
	s.BoolVar(&f.Update, "update", false, "write the tables into docs/"+page+", too")
	s.DurationVar(&f.Most, "timeout", most, "how long all may take; what was measured until then is written")
}

// Within calls do with a context that ends when all has taken long enough, the root of the tree, and a folder that is removed
// in the end.
func (f *Flags) Within(ctx context.Context, do func(ctx context.Context, root, dir string) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.Most, fmt.Errorf("--timeout %s is over", f.Most))
	defer cancel()
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rf-bench-") // short: sockets may lie in it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(ctx, root, dir)
}

// File is the name of what a bench writes. A part of it does not replace what a whole run has written.
func File(bench string, part bool) string {
	if part {
		return bench + "-partial"
	}
	return bench
}

// Pause lets a time pass, unless ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Names are those in a list that is separated by commas.
func Names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Role is a part that a command plays as a child of itself. spec is what it is told, as JSON.
type Role func(ctx context.Context, spec []byte, out io.Writer) error

// As is a role that is told a T.
func As[T any](do func(ctx context.Context, spec T, out io.Writer) error) Role {
	return func(ctx context.Context, text []byte, out io.Writer) error {
		var spec T
		if err := json.Unmarshal(text, &spec); err != nil {
			return err
		}
		return do(ctx, spec, out)
	}
}

// Roles are a command's, by their names.
type Roles map[string]Role

// Play plays a role where the arguments are its name and what it is told. It reports whether they are.
func (r Roles) Play(ctx context.Context, args []string, out io.Writer) (bool, error) {
	if len(args) != 2 || r[args[0]] == nil {
		return false, nil
	}
	return true, r[args[0]](ctx, []byte(args[1]), out)
}
