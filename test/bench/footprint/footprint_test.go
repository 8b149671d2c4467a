package main

import (
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/test/cluster"
)

func TestAPackageIsReachedUnlessAllWaysPassThroughAnother(t *testing.T) {
	const graph = `
` + module + `/router ` + discovery + ` net/http
` + discovery + ` k8s.io/client-go/rest k8s.io/api/core/v1
k8s.io/client-go/rest k8s.io/client-go/util/flowcontrol
k8s.io/client-gone net/http
net/http k8s.io/client-gone
k8s.io/client-go/util/flowcontrol
`
	for name, c := range map[string]struct {
		more string
		want []string
	}{
		"client-go through router/discovery alone": {"", nil},
		"client-go from another package too": {"net/http k8s.io/client-go/rest\n",
			[]string{"k8s.io/client-go/rest", "k8s.io/client-go/util/flowcontrol"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := of(parse(graph+c.more).reach(module+"/router", discovery), clientGo); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestAProgramIsAsGreatAsItsGreatestProcess(t *testing.T) {
	var found []process
	for _, p := range components {
		found = append(found, process{component: p, size: 1e6, memory: cluster.Memory{Resident: 2e6, Anonymous: 1e6}},
			process{component: p, size: 1e6, memory: cluster.Memory{Resident: 351e6, Anonymous: 3e6}})
	}
	holds := 0
	for _, f := range sizeFigures(found, 61e6) {
		if f.Goal != "" && f.Holds {
			holds++
		}
		if f.Unit != "MB" || f.Value != 1 && f.Value != 351 && f.Value != 3 && f.Value != 61 {
			t.Errorf("%+v", f)
		}
	}
	if holds != 3 {
		t.Errorf("%d goals hold, want those of the three small files alone", holds)
	}
}
