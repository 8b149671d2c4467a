package worker

import (
	"maps"
	"slices"
)

// keysOf are the keys of one worker.
func keysOf(owner map[string]string, pod string) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(owner)) {
		if owner[k] == pod {
			keys = append(keys, k)
		}
	}
	return keys
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
