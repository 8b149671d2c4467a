package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestAllIsWhatIsNotTooLarge(t *testing.T) {
	every := []string{"manager", "router", "worker", "smollm2"}
	for name, c := range map[string]struct{ args, want []string }{
		"nothing named":                 {nil, every},
		"all":                           {[]string{"all"}, every},
		"one":                           {[]string{"router"}, []string{"router"}},
		"that for GPUs alone":           {[]string{"worker-cuda"}, []string{"worker-cuda"}},
		"that for GPUs besides all":     {[]string{"worker-cuda", "all"}, append(slices.Clone(every), "worker-cuda")},
		"one that all of them contains": {[]string{"all", "router"}, every},
	} {
		if got := chosen(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

func TestTheImageForGPUsIsOffered(t *testing.T) {
	for name, args := range map[string][]string{"help": {"build", "--help"}, "completion": {"__complete", "build", "worker-"}} {
		var out bytes.Buffer
		c := New(&out, &bytes.Buffer{})
		c.SetArgs(args)
		if err := c.Execute(); err != nil || !strings.Contains(out.String(), "worker-cuda") {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
	}
}
