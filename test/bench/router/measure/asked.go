package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/router/load"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Kinds of load.
const (
	Closed  = "closed"
	Open    = "open"
	Streams = "streams"
	Hold    = "hold"
)

// Asked is what a program in the role of the load does, and prints the outcome of as JSON.
type Asked struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"` // of connections, or of streams
	Rate  int    `json:"rate"`  // of Open, per second
	For   int    `json:"for"`   // seconds
	// Address, Stream and Prompt make the target.
	Address string `json:"address"`
	Stream  bool   `json:"stream"`
	Prompt  int    `json:"prompt"` // bytes
}

// Do runs a load and returns its outcome. Of Hold it returns the streams, which stay open.
func (a Asked) Do(ctx context.Context) (any, error) {
	t, d := target(a.Address, a.Stream, a.Prompt), time.Duration(a.For)*time.Second
	switch a.Kind {
	case Closed:
		return load.Closed(ctx, t, a.Count, d), nil
	case Open:
		return load.Open(ctx, t, a.Count, a.Rate, d), nil
	case Streams:
		return load.Streams(ctx, t, a.Count, d), nil
	case Hold:
		h := load.Hold(ctx, t, a.Count, 64)
		return load.Stream{Streams: h.Open(), Failed: h.Failed, Error: h.Error}, nil
	}
	return nil, fmt.Errorf("a load of kind %q: want %s, %s, %s or %s", a.Kind, Closed, Open, Streams, Hold)
}

// used is what a side's process has used.
type used struct{ cpu time.Duration }

// ask runs a load on a side in a process of its own, and returns what the side's process used for it. out is filled from
// what the load printed.
func (r *Rig) ask(ctx context.Context, s *Side, a Asked, out any) (used, error) {
	a.Address = s.address
	text, err := json.Marshal(a)
	if err != nil {
		return used{}, err
	}
	before, err := s.cpu()
	if err != nil {
		return used{}, err
	}
	printed, err := process.Run(ctx, process.Spec{Path: r.Program, Args: []string{RoleLoad, string(text)}})
	if err != nil {
		return used{}, err
	}
	after, err := s.cpu()
	if err != nil {
		return used{}, fmt.Errorf("%w; the log of %s: %s", err, s.Name, r.log(s.Name))
	}
	if err := json.Unmarshal([]byte(printed), out); err != nil {
		return used{}, fmt.Errorf("read what the load printed: %w", err)
	}
	return used{after - before}, nil
}

// cpu is the processor time of a side until now; 0 of the direct one.
func (s *Side) cpu() (time.Duration, error) {
	if s.process == nil {
		return 0, nil
	}
	return s.process.CPU()
}

// memory is the resident memory of a process in bytes.
func memory(pid int) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib float64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}
