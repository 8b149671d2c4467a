package worker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// byKey places requests by their key alone, however many there are.
func byKey(s *discovery.Settings) {
	s.Policy, s.MaxLoadPercent = string(v1alpha1.PlacementConsistentHash), 100_000
}

// owners asks a router for each of n keys, and returns who answered.
func owners(ctx context.Context, x *rig.Router, n int) (map[string]string, error) {
	owner := map[string]string{}
	all := x.Client.Many(ctx, n, 8, func(i int) client.Request {
		q := words(1, false)
		q.Session = "key-" + strconv.Itoa(i)
		return q
	})
	for i := range all {
		if !good(&all[i]) {
			return nil, fmt.Errorf("key %d has no answer from %s: %d %s", i, x.Name, all[i].Status, all[i].Code)
		}
		owner["key-"+strconv.Itoa(i)] = all[i].Worker
	}
	return owner, nil
}

// moved is how many keys of one map are another worker's in the other.
func moved(from, to map[string]string) (n int) {
	for k, w := range from {
		if to[k] != w {
			n++
		}
	}
	return n
}

// strays is how many keys were not a worker's, and moved all the same.
func strays(from, to map[string]string, pod string) (n int) {
	for k, w := range from {
		if w != pod && to[k] != w {
			n++
		}
	}
	return n
}
