package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
)

// Goals, in seconds.
const (
	tokenGoal = 1.2
	ringGoal  = 8
)

// repetition is what was seen of one start. All times are of this machine's clock, which the nodes share.
type repetition struct {
	deleted   time.Time // the request to delete the only worker by force was sent
	created   time.Time // the API server told of the successor
	scheduled time.Time // ... of its node
	pulled    time.Time // ... of the kubelet's last event that an image is there: the worker's, or the weights'
	began     time.Time // the worker's program was first seen to run, or wrote its first line, whichever was earlier
	loaded    time.Time // the worker's line that says so
	token     time.Time // the first token of a request straight to the worker, sent when it reported the model loaded
	inRing    time.Time // the API server told that the gate is open: every Ready router has it
	answered  time.Time // the first token, from the successor, of a client of the router who had asked all the time
	refused   int       // requests of that client without an answer
}

// stage is the time between two moments.
type stage struct {
	name     string
	goal     float64 // seconds; 0 for none
	from, to func(repetition) time.Time
}

var stages = []stage{
	{"worker deleted by force → successor in the ring", ringGoal, func(r repetition) time.Time { return r.deleted }, func(r repetition) time.Time { return r.inRing }},
	{"process start → first token, straight from the worker", tokenGoal, func(r repetition) time.Time { return r.began }, func(r repetition) time.Time { return r.token }},
	{"worker deleted → successor created", 0, func(r repetition) time.Time { return r.deleted }, func(r repetition) time.Time { return r.created }},
	{"created → scheduled", 0, func(r repetition) time.Time { return r.created }, func(r repetition) time.Time { return r.scheduled }},
	{"scheduled → images and weights there", 0, func(r repetition) time.Time { return r.scheduled }, func(r repetition) time.Time { return r.pulled }},
	{"images there → process start", 0, func(r repetition) time.Time { return r.pulled }, func(r repetition) time.Time { return r.began }},
	{"process start → model loaded", 0, func(r repetition) time.Time { return r.began }, func(r repetition) time.Time { return r.loaded }},
	{"loaded → first token, straight from the worker", 0, func(r repetition) time.Time { return r.loaded }, func(r repetition) time.Time { return r.token }},
	{"loaded → in the ring", 0, func(r repetition) time.Time { return r.loaded }, func(r repetition) time.Time { return r.inRing }},
	{"loaded → first token through the router", 0, func(r repetition) time.Time { return r.loaded }, func(r repetition) time.Time { return r.answered }},
	{"created → first token through the router", 0, func(r repetition) time.Time { return r.created }, func(r repetition) time.Time { return r.answered }},
	{"worker deleted → first token through the router", 0, func(r repetition) time.Time { return r.deleted }, func(r repetition) time.Time { return r.answered }},
}

// figures are the medians of all stages, and the slowest of those with a goal.
func figures(all []repetition) []bench.Figure {
	var out, slowest []bench.Figure
	for _, s := range stages {
		var seconds []float64
		for _, r := range all {
			seconds = append(seconds, s.to(r).Sub(s.from(r)).Seconds())
		}
		if s.goal == 0 {
			out = append(out, bench.Plain(s.name, median(seconds), "s"))
			continue
		}
		out = append(out, bench.AtMost(s.name, median(seconds), "s", s.goal))
		slowest = append(slowest, bench.Plain(s.name+", slowest", slices.Max(seconds), "s"))
	}
	var refused []float64
	for _, r := range all {
		refused = append(refused, float64(r.refused))
	}
	out = append(out, slowest...)
	return append(out, bench.Plain("requests without an answer meanwhile, one at a time", median(refused), "requests"))
}

// median is the middle of values, or the mean of the two in the middle; values are not empty.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// record is what a worker's log says.
type record struct {
	starts, loaded time.Time
	served         map[string]bool // ids of requests that ended well
}

// read reads the lines of a worker's log, and passes over what is not one of ours.
func read(log string) record {
	r := record{served: map[string]bool{}}
	for line := range strings.Lines(log) {
		var l struct {
			Time    time.Time
			Msg     string
			Request string
			Code    string
		}
		if json.Unmarshal([]byte(line), &l) != nil {
			continue
		}
		switch {
		case l.Msg == "The worker starts" && r.starts.IsZero():
			r.starts = l.Time
		case l.Msg == "The model is loaded" && r.loaded.IsZero():
			r.loaded = l.Time
		case l.Msg == "A generate call ended" && l.Code == "":
			r.served[l.Request] = true
		}
	}
	return r
}

// lacks names the moments that were not seen.
func (r repetition) lacks() error {
	var none []string
	for _, m := range []struct {
		name string
		at   time.Time
	}{
		{"its creation", r.created}, {"its scheduling", r.scheduled}, {"its images", r.pulled}, {"its process", r.began},
		{"the loaded model", r.loaded}, {"its first token", r.token}, {"its place in the ring", r.inRing}, {"its first answer", r.answered},
	} {
		if m.at.IsZero() {
			none = append(none, m.name)
		}
	}
	if none != nil {
		return fmt.Errorf("of the successor these were not seen: %s", strings.Join(none, ", "))
	}
	return nil
}
