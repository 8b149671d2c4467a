package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func flags(args string) (options, error) {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(&bytes.Buffer{})
	return parse(f, strings.Fields(args))
}

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args, bad string
		own       int
		names     int
	}{
		"a trace is enough":                 {"--trace t", "", 0, 0},
		"a fleet of one's own":              {"--trace t --workers 16 --blocks 1000 --speed 2 --routers 3", "", 4, 0},
		"some policies":                     {"--trace t --policies oracle,LeastLoaded", "", 0, 2},
		"no trace":                          {"", "Mooncake", 0, 0},
		"no router":                         {"--trace t --routers 0", "--routers 0", 1, 0},
		"a policy that is not there":        {"--trace t --policies best", `--policies "best"`, 0, 1},
		"the documentation, of a whole run": {"--trace t --update", "", 0, 0},
		"the documentation, of some":        {"--trace t --update --policies oracle", "--update", 0, 1},
		"the documentation, of other fleet": {"--trace t --update --speed 1", "--update", 1, 0},
	} {
		o, err := flags(c.args)
		if c.bad == "" && err != nil || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%s: %v, want %q", name, err, c.bad)
		}
		if len(o.own) != c.own || len(o.names()) != c.names {
			t.Errorf("%s: %q and %q", name, o.own, o.names())
		}
	}
}

const made = "testdata/conversation.jsonl"

// beside copies the made-up trace under other names into a folder.
func beside(t *testing.T, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, names[0])
}

func TestWhatIsReplayed(t *testing.T) {
	for name, c := range map[string]struct {
		path, args string
		want       string
		left       bool // the synthetic trace is said to be left out
	}{
		"a whole run":                 {beside(t, "conversation_trace.jsonl", "synthetic_trace.jsonl"), "", "one router, three routers, 1.5 times as fast, 1,000 blocks, synthetic", false},
		"without the second trace":    {beside(t, "conversation_trace.jsonl"), "", "one router, three routers, 1.5 times as fast, 1,000 blocks", true},
		"another trace":               {beside(t, "toolagent_trace.jsonl", "synthetic_trace.jsonl"), "", "one router, three routers, 1.5 times as fast, 1,000 blocks", false},
		"a fleet of the caller's own": {beside(t, "conversation_trace.jsonl", "synthetic_trace.jsonl"), "--workers 16 --routers 2", "2 router(s)", false},
	} {
		o, err := flags("--trace " + c.path + " " + c.args)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		setups, err := plan(o, &out)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range setups {
			got = append(got, s.name)
		}
		if strings.Join(got, ", ") != c.want || strings.Contains(out.String(), "left out") != c.left {
			t.Errorf("%s: %q, told %q", name, got, out.String())
		}
		if !strings.Contains(out.String(), "64 requests") {
			t.Errorf("%s: nobody is told what the trace holds: %q", name, out.String())
		}
	}
}

func TestSetupsDifferInOneThing(t *testing.T) {
	o, err := flags("--trace " + beside(t, "conversation_trace.jsonl", "synthetic_trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	setups, err := plan(o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"conversation_trace (64 requests), 1 × as fast, 8 workers of 4000 blocks, one router",
		"conversation_trace (64 requests), 1 × as fast, 8 workers of 4000 blocks, 3 routers that share nothing but the ring",
		"conversation_trace (64 requests), 1.5 × as fast, 8 workers of 4000 blocks, one router",
		"conversation_trace (64 requests), 1 × as fast, 8 workers of 1000 blocks, one router",
		"synthetic_trace (64 requests), 1 × as fast, 8 workers of 4000 blocks, one router",
	} {
		if got := setups[i].title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEveryPolicyIsReplayedButRulesThatSeeEverythingWithOneRouterOnly(t *testing.T) {
	o, err := flags("--trace " + made)
	if err != nil {
		t.Fatal(err)
	}
	setups, err := plan(o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := replay(context.Background(), setups[:2], nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tables[0].Rows) != len(names()) || len(tables[1].Rows) != 4 {
		t.Errorf("%d and %d rows", len(tables[0].Rows), len(tables[1].Rows))
	}
	for _, table := range tables {
		for _, r := range table.Rows {
			if r.Policy == "" || r.Mean <= 0 || r.RequestPeak < 1 {
				t.Errorf("%s: %+v", table.Name, r)
			}
		}
	}
	if f := judge(setups[:2], tables); f != nil {
		t.Errorf("a made-up trace is held to the goals of Mooncake's: %v", f)
	}
}

func TestARunEndsWithItsTime(t *testing.T) {
	o, err := flags("--trace " + made)
	if err != nil {
		t.Fatal(err)
	}
	setups, err := plan(o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("--timeout 1ms is over"))
	if _, err := replay(ctx, setups, nil); err == nil || !strings.Contains(err.Error(), "--timeout 1ms is over") {
		t.Errorf("%v", err)
	}
}
