package measure

import (
	"context"
	"fmt"

	"github.com/ringfleet/ringfleet/test/bench/gobench"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Names of the measures of one package alone.
const (
	Ring     = "ring"
	Decision = "decision"
)

// Goals of packages alone.
const (
	goalLookup   = 20   // ns, without the hash of the key
	goalAdmitted = 2    // µs an admission decision
	goalFlat     = 1.25 // that with 5,000 flows over that with one
	goalPlaced   = 400  // µs to hash, look up and note a prompt of 220 KB
)

// rounds is how often each benchmark runs.
const rounds = 5

// single is a measure of packages alone, by their own benchmarks.
type single struct {
	name string
	runs []run
}

// run is a package's benchmarks, and the rows that they make.
type run struct {
	folder, pattern string
	rows            func(printed string) ([]pairs.Row, error)
}

var alone = []single{
	{Ring, []run{{"./router/ring", `^Benchmark(Lookup|Owner)$/^members=(8|128|1000)$`, ringRows}}},
	{Decision, []run{
		{"./router/queue", `^BenchmarkEnterWhileOthersWait$/^flows=(1|5000)$`, admissionRows},
		{"./router/prefix", `^BenchmarkDecision220KB$`, prefixRows},
	}},
}

// alone runs the benchmarks of a measure.
func (r *Rig) alone(ctx context.Context, m single) (rows []pairs.Row, err error) {
	load, err := process.Load()
	if err != nil {
		return nil, err
	}
	for _, b := range m.runs {
		printed, err := gobench.Run(ctx, r.Root, b.folder, b.pattern, rounds)
		if err != nil {
			return rows, err
		}
		more, err := b.rows(printed)
		if err != nil {
			return rows, err
		}
		for i := range more {
			more[i].Load = load
		}
		rows = append(rows, more...)
		fmt.Fprintf(r.Out, "measured: %s, %s\n", m.name, b.folder)
	}
	return rows, nil
}

func ringRows(printed string) (rows []pairs.Row, err error) {
	for _, n := range []int{8, 128, 1000} {
		lookup, err := gobench.Read(printed, fmt.Sprintf("BenchmarkLookup/members=%d", n), gobench.Nanos)
		if err != nil {
			return nil, err
		}
		owner, err := gobench.Read(printed, fmt.Sprintf("BenchmarkOwner/members=%d", n), gobench.Nanos)
		if err != nil {
			return nil, err
		}
		rows = append(rows, pairs.AtMost(fmt.Sprintf("the owner of a hashed key, of %d workers", n), lookup, "ns", goalLookup),
			pairs.Plain(fmt.Sprintf("the owner of a key of 36 bytes with its hash, of %d workers", n), owner, "ns"))
	}
	return rows, nil
}

func admissionRows(printed string) ([]pairs.Row, error) {
	one, err := gobench.Read(printed, "BenchmarkEnterWhileOthersWait/flows=1", gobench.Nanos)
	if err != nil {
		return nil, err
	}
	many, err := gobench.Read(printed, "BenchmarkEnterWhileOthersWait/flows=5000", gobench.Nanos)
	if err != nil {
		return nil, err
	}
	return []pairs.Row{
		pairs.AtMost("one admission decision while one flow waits", micro(one), "µs", goalAdmitted),
		pairs.AtMost("one admission decision while 5,000 flows wait", micro(many), "µs", goalAdmitted),
		pairs.AtMost("one admission decision, 5,000 flows over one", pairs.Over(many, one), "×", goalFlat),
	}, nil
}

func prefixRows(printed string) ([]pairs.Row, error) {
	s, err := gobench.Read(printed, "BenchmarkDecision220KB", gobench.Nanos)
	if err != nil {
		return nil, err
	}
	return []pairs.Row{pairs.AtMost("a prompt of 220 KB hashed, looked up for 8 workers, and noted", micro(s), "µs", goalPlaced)}, nil
}

// micro are nanoseconds as microseconds.
func micro(nanos pairs.Series) pairs.Series {
	out := make(pairs.Series, len(nanos))
	for i, v := range nanos {
		out[i] = v / 1000
	}
	return out
}
