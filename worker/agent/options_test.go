package agent

import (
	"flag"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, env map[string]string, args ...string) Options {
	t.Helper()
	var o Options
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.bind(f, func(k string) string { return env[k] })
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestSettingsThatCanNotWorkAreNamedWithTheirValue(t *testing.T) {
	fine := []string{"--model=m", "--namespace=n"}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want string // part of the refusal; "" means accepted
	}{
		"the defaults and two names are enough": {fine, nil, ""},
		"no model":                              {[]string{"--namespace=n"}, nil, `--model ""`},
		"no namespace":                          {[]string{"--model=m"}, nil, `--namespace ""`},
		"the simulated driver":                  {append(fine, "--driver=sim"), nil, "--driver sim: want llamacpp"},
		"an unknown type of cache":              {append(fine, "--kv-cache-type=F8"), nil, "--kv-cache-type F8: want F16 or Q8"},
		"a context of nothing":                  {append(fine, "--context-tokens=0"), nil, "--context-tokens 0: want 256 to"},
		"too many sequences":                    {append(fine, "--max-sequences=129"), nil, "--max-sequences 129: want 1 to 128"},
		"a weight of nothing":                   {append(fine, "--ring-weight-percent=0"), nil, "--ring-weight-percent 0: want 1 to 1000"},
		"a weight of eleven workers":            {append(fine, "--ring-weight-percent=1001"), nil, "--ring-weight-percent 1001: want 1 to 1000"},
		"negative threads":                      {append(fine, "--threads=-1"), nil, "--threads -1"},
		"a drain of less than nothing":          {append(fine, "--drain-timeout=-1s"), nil, "--drain-timeout -1s"},
		"a split that is none":                  {append(fine, "--gpu-split=column"), nil, "--gpu-split column: want layer, row or none"},
		"a GPU below the first":                 {append(fine, "--gpu-main=-1"), nil, "--gpu-main -1: want 0 or more"},
		"an unknown attention":                  {append(fine, "--flash-attention=yes"), nil, "--flash-attention yes: want auto, on or off"},
		"adapters that a server would not get":  {append(fine, "--driver=openai", "--adapters=a=b"), nil, "--adapters a=b: want --driver llamacpp"},
		"a limit that is no number":             {fine, map[string]string{"CPU_LIMIT": "two"}, `CPU_LIMIT: "two" is not a whole number`},
		"a variable that is no duration":        {fine, map[string]string{"RINGFLEET_DRAIN_TIMEOUT": "600"}, `"600" is not a duration`},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, c.env, c.args...)
			err := o.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestEverySettingMayComeFromTheEnvironmentAndTheFlagWins(t *testing.T) {
	env := map[string]string{
		"RINGFLEET_MODEL": "env", "RINGFLEET_MAX_WAITING": "7", "RINGFLEET_DRAIN_TIMEOUT": "90s",
		"POD_NAMESPACE": "team", "POD_NAME": "p", "POD_UID": "u", "CPU_LIMIT": "4",
	}
	o := parse(t, env, "--model=flag")
	if o.Model != "flag" || o.MaxWaiting != 7 || o.DrainTimeout != 90*time.Second || o.Namespace != "team" || o.PodName != "p" || o.PodUID != "u" {
		t.Errorf("got %+v", o)
	}
	if got := o.threads(); got != 3 {
		t.Errorf("%d threads with a limit of 4 cores", got)
	}
	for _, c := range []struct{ limit, set, want int }{{1, 0, 1}, {2, 0, 1}, {8, 0, 7}, {8, 2, 2}} {
		o.CPULimit, o.Threads = c.limit, c.set
		if got := o.threads(); got != c.want {
			t.Errorf("limit %d, --threads %d: %d threads, want %d", c.limit, c.set, got, c.want)
		}
	}
	o = parse(t, nil)
	var names int
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.bind(f, func(k string) string {
		if strings.HasPrefix(k, "RINGFLEET_") {
			names++
		}
		return ""
	})
	flags := 0
	f.VisitAll(func(*flag.Flag) { flags++ })
	if names != flags {
		t.Errorf("%d variables for %d flags", names, flags)
	}
}
