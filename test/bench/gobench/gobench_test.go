package gobench

import (
	"slices"
	"testing"
)

func TestGoBenchmarksAreRead(t *testing.T) {
	const text = `goos: linux
BenchmarkStep/streams=16-2   	  100000	     11234 ns/op	        10.5 cpu-µs/op	    2048 B/op
BenchmarkStep/streams=16-2   	  100000	     11234 ns/op	        12 cpu-µs/op	    2048 B/op
BenchmarkStep/streams=1-2    	  100000	      1234 ns/op	         1 cpu-µs/op	    2048 B/op
BenchmarkStep/streams=164    	  100000	      1234 ns/op	        99 cpu-µs/op	    2048 B/op
PASS
`
	got, err := Read(text, "BenchmarkStep/streams=16", "cpu-µs/op")
	if err != nil || !slices.Equal(got, []float64{10.5, 12}) {
		t.Errorf("%v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing ran":     "PASS\n",
		"another unit":    "BenchmarkStep/streams=16-2 1 2 ns/op\n",
		"not a number":    "BenchmarkStep/streams=16-2 1 x cpu-µs/op\n",
		"half of a line":  "BenchmarkStep/streams=16-2\n",
		"a unit is alone": "BenchmarkStep/streams=16-2 1 cpu-µs/op\n",
	} {
		if got, err := Read(text, "BenchmarkStep/streams=16", "cpu-µs/op"); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
