//go:build e2e

package e2e

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/test/bench"
)

var (
	recordMu sync.Mutex // guards recorded
	recorded []bench.Figure
)

// record keeps a figure that must not exceed goal for bench/out/faults-cluster.json. It never fails a test: times are noisy.
func record(name string, value float64, unit string, goal float64) {
	recordMu.Lock()
	defer recordMu.Unlock()
	recorded = append(recorded, bench.AtMost(name, value, unit, goal))
}

func writeRecorded() {
	recordMu.Lock()
	defer recordMu.Unlock()
	if len(recorded) == 0 {
		return
	}
	if err := bench.Write("../../bench/out", "faults-cluster", "Faults on a two-node cluster", recorded); err != nil {
		fmt.Println("e2e: write bench/out/faults-cluster.json:", err)
	}
}

func eachItem(list client.ObjectList, f func(client.Object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		f(o.(client.Object))
		return nil
	})
}
