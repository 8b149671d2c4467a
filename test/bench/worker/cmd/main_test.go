package main

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/test/bench/command"
)

func TestFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args, bad string
		pairs     int
		names     []string
	}{
		"defaults":                          {"", "", 15, nil},
		"quick is three pairs":              {"--quick", "", 3, nil},
		"some measures":                     {"--only decode,gap", "", 15, []string{"decode", "gap"}},
		"no pair":                           {"--pairs 0", "--pairs 0", 0, nil},
		"the documentation, of a whole run": {"--update", "", 15, nil},
		"the documentation, of a quick run": {"--update --quick", "--update", 0, nil},
		"the documentation, of a part":      {"--update --only gap", "--update", 0, nil},
	} {
		var o options
		f := flag.NewFlagSet("", flag.ContinueOnError)
		o.bind(f)
		if err := f.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		err := o.validate()
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || o.pairs != c.pairs || !slices.Equal(command.Names(o.Only), c.names) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}
