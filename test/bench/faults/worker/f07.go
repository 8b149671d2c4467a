package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// verdicts is the rule in its own words: after each heartbeat of a worker that is in the ring, S for a good one and F for one
// that failed, whether it is there. Three failures in a row take it out, two good ones in a row let it in again.
func verdicts(beats string) []bool {
	in, good, bad := true, 0, 0
	out := make([]bool, len(beats))
	for i, b := range beats {
		if b == 'S' {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case bad >= 3:
			in = false
		case good >= 2:
			in = true
		}
		out[i] = in
	}
	return out
}

// judged are the verdicts of the detector that routers have.
func judged(beats string) []bool {
	now := time.Unix(1_700_000_000, 0)
	d := heartbeat.NewDetector(heartbeat.DefaultConfig(), heartbeat.Expect{ModelUID: "m"}, now)
	well := &workerv1.Report{InstanceId: "a", ModelUid: "m", ModelLoaded: true}
	step := func(b byte) bool {
		now = now.Add(time.Second)
		if b == 'S' {
			d.Report(now, well)
		} else {
			d.Broken(now, "it is told to fail")
		}
		return d.State() == heartbeat.Up
	}
	step('S')
	step('S')
	out := make([]bool, len(beats))
	for i := range len(beats) {
		out[i] = step(beats[i])
	}
	return out
}

// flaps are the sequences that workers are given, one each.
var flaps = []string{"FFSSFFSS", "FFFSFFFSS", "FFFSSFFFSS", "FSFSFSFSFS", "FFFFFSSFFS", "FFFSFSFSSS"}

// flapping is F07.
func flapping() []trial.Trial {
	return []trial.Trial{{ID: "F07", Says: "heartbeats that fail and come back", Times: 1_000_000, Takes: 15 * time.Second, Spec: rig.Spec{},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			sequences := max(times, 10_000)
			wrong := 0
			for i := range sequences {
				source := rand.New(rand.NewPCG(uint64(i), 7))
				var b strings.Builder
				for range 4 + source.IntN(28) {
					b.WriteByte("SF"[source.IntN(2)])
				}
				if beats := b.String(); !equal(verdicts(beats), judged(beats)) {
					wrong++
				}
			}
			seen, strange, err := flap(ctx, r)
			return []bench.Figure{
				bench.AtMost("F07 random sequences whose verdicts are not the rule's", float64(wrong), "", 0),
				bench.Plain("F07 random sequences", float64(sequences), ""),
				bench.AtMost("F07 verdicts of a router on workers that flap that are not the rule's", float64(strange), "", 0),
				bench.Plain("F07 verdicts of a router", float64(seen), ""),
			}, err
		}}}
}

func equal(a, b []bool) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// flap lets workers flap, all at once, and compares a router's verdict after each heartbeat with the rule.
func flap(ctx context.Context, r *rig.Rig) (seen, strange int, err error) {
	state := r.State()
	var all []*liar
	for i := range flaps {
		l := newLiar(r, r.Model, "flapping-"+string(rune('a'+i)), "")
		l.scripted = true
		stop, err := l.start()
		if err != nil {
			return 0, 0, err
		}
		defer stop()
		all = append(all, l)
		state = with(state, r.Model, l.candidate())
	}
	if err := r.Tell(ctx, state); err != nil {
		return 0, 0, err
	}
	longest := 0
	for _, f := range flaps {
		longest = max(longest, len(f))
	}
	began := time.Now().Add(time.Second)
	const (
		admit = 3 // heartbeats until all are in the ring
		// A little more than the interval, so that one that comes a little early still counts.
		every = 1050 * time.Millisecond
		// A heartbeat has failed by then, and the next one is not due yet.
		after = 850 * time.Millisecond
	)
	for n := range admit + longest {
		if err := command.Pause(ctx, time.Until(began.Add(time.Duration(n)*every))); err != nil {
			return seen, strange, err
		}
		for i, l := range all {
			if at := n - admit; at < 0 || at >= len(flaps[i]) || flaps[i][at] == 'S' {
				l.beat()
			}
		}
		if err := command.Pause(ctx, time.Until(began.Add(time.Duration(n)*every+after))); err != nil {
			return seen, strange, err
		}
		if n < admit-1 {
			continue
		}
		for i, l := range all {
			is, err := r.Routers[0].InRing(ctx, l.pod)
			if err != nil {
				return seen, strange, err
			}
			want, at := true, n-admit
			if at >= len(flaps[i]) {
				continue
			}
			if at >= 0 {
				want = verdicts(flaps[i])[at]
			}
			seen++
			if is != want {
				strange++
			}
		}
	}
	return seen, strange, nil
}
