package command

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheHelpSaysWhatFlagsAreOfThisBench(t *testing.T) {
	var help bytes.Buffer
	s := flag.NewFlagSet("bench", flag.ContinueOnError)
	s.SetOutput(&help)
	var f Flags
	f.Bind(s, "measures: a, b", "three pairs", "page.md", time.Hour)
	if err := s.Parse([]string{"--help"}); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"only these measures: a, b", "three pairs, to see that everything works", "docs/page.md", "default 1h0m0s"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("no %q in\n%s", want, help.String())
		}
	}
}

func TestNamesAreSeparatedByCommasOrSpaces(t *testing.T) {
	for list, want := range map[string][]string{"": {}, ",": {}, "a": {"a"}, "a,b, c": {"a", "b", "c"}} {
		if got := Names(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q", list, got)
		}
	}
}

func TestAFolderIsThereWhileABenchRunsAndGoneThen(t *testing.T) {
	f, broken, kept := Flags{Most: time.Hour}, errors.New("broken"), ""
	err := f.Within(t.Context(), func(_ context.Context, root, dir string) error {
		kept = dir
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", kept, err)
	}
}

func TestARunThatTakesTooLongIsToldSo(t *testing.T) {
	f := Flags{Most: time.Nanosecond}
	err := f.Within(t.Context(), func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err == nil || err.Error() != "--timeout 1ns is over" {
		t.Error(err)
	}
}

func TestAPauseIsOverWhenItsTimeIs(t *testing.T) {
	if err := Pause(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
}

func TestAPauseEndsWithItsContextAndSaysWhy(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Pause(ctx, time.Hour); !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestARoleIsPlayedWhereItIsNamedAndToldSomething(t *testing.T) {
	type told struct{ Port int }
	roles := Roles{"worker": As(func(_ context.Context, s told, out io.Writer) error {
		_, err := fmt.Fprint(out, s.Port)
		return err
	})}
	for args, want := range map[string]struct {
		played bool
		out    string
		bad    bool
	}{
		`worker {"Port":7}`: {true, "7", false},
		"worker Port=7":     {true, "", true},
		"worker":            {false, "", false},
		"router {}":         {false, "", false},
		"--only worker":     {false, "", false},
	} {
		var out bytes.Buffer
		played, err := roles.Play(t.Context(), strings.Fields(args), &out)
		if played != want.played || out.String() != want.out || (err != nil) != want.bad {
			t.Errorf("%s: played %t, %q, %v", args, played, out.String(), err)
		}
	}
}
