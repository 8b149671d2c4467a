package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
)

// Batched is one run of llama-batched-bench: so many sequences with prompts of so many tokens each, and so many steps of one
// token for each of them.
type Batched struct {
	Sequences, Prompt, Steps int
	// Unified has all sequences share one KV cache, as the worker's do. llama.cpp's own default is one for each.
	Unified bool
}

// Pace is how a run went.
type Pace struct {
	// Rate is tokens a second of all sequences, prompts apart.
	Rate float64
	// CPU is the processor time for each of those tokens.
	CPU time.Duration
}

// A run has four rounds of prompts and steps. The first brings everything into the caches. The measured one is the second;
// what it has over the third, of one step, is steps alone. The last gives time to read the clock after the third.
const rounds = 4

// Run runs llama-batched-bench on the worker's own library. It chooses no tokens: those it decodes are random.
func (b Batched) Run(ctx context.Context, p programs.Programs) (Pace, error) {
	args := []string{
		"-m", p.Weights, "-c", strconv.Itoa(ContextTokens), "-t", strconv.Itoa(Threads), "-tb", strconv.Itoa(Threads),
		"-npl", strconv.Itoa(b.Sequences), "-npp", strconv.Itoa(b.Prompt), "-ntg", fmt.Sprintf("1,%d,1,1", b.Steps), "--output-format", "jsonl",
	}
	if b.Unified {
		args = append(args, "--kv-unified")
	}
	found := make(chan string, rounds)
	run, err := process.Start(ctx, process.Spec{
		Path: p.BatchedBench, Args: args,
		// The builds of its kernels are looked for in the current folder, too.
		Dir: p.Libraries, Env: []string{"LD_LIBRARY_PATH=" + p.Search},
		Line: func(line string) {
			if strings.HasPrefix(line, "{") && len(found) < rounds {
				found <- line
			}
		},
	})
	if err != nil {
		return Pace{}, err
	}
	defer run.Stop()
	var used [rounds - 1]time.Duration // after each
	var measured string
	for i := range used {
		select {
		case line := <-found:
			if i == 1 {
				measured = line
			}
		case <-run.Ended():
			return Pace{}, run.Lost()
		}
		if used[i], err = run.CPU(); err != nil {
			return Pace{}, err
		}
	}
	if err := run.Wait(); err != nil {
		return Pace{}, err
	}
	rate, err := b.read(measured)
	return Pace{Rate: rate, CPU: b.each(used)}, err
}

// each is the processor time of a token.
func (b Batched) each(used [rounds - 1]time.Duration) time.Duration {
	measured, single := used[1]-used[0], used[2]-used[1]
	return (measured - single) / time.Duration((b.Steps-1)*b.Sequences)
}

// read returns the tokens a second of a line that llama-batched-bench printed.
func (b Batched) read(line string) (float64, error) {
	var l struct {
		PP, TG, PL int
		Threads    int     `json:"n_threads"`
		Rate       float64 `json:"speed_tg"`
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return 0, fmt.Errorf("read %q of llama-batched-bench: %w", line, err)
	}
	if l.PP != b.Prompt || l.TG != b.Steps || l.PL != b.Sequences || l.Threads != Threads || l.Rate <= 0 {
		return 0, fmt.Errorf("llama-batched-bench printed %q, which is not %+v with %d threads", line, b, Threads)
	}
	return l.Rate, nil
}
