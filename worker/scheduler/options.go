package scheduler

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// Sampler chooses the tokens of one choice. One goroutine at a time calls it.
type Sampler interface {
	// Next returns the next token. It leaves the logits as they are: choices of one prompt share them. An error ends the
	// request.
	Next(logits []float32) (sampling.Choice, error)
	// Accept takes a token as the next one of the output.
	Accept(t engine.Token)
}

// Options say how a scheduler works.
type Options struct {
	// MaxSequences is the most sequences that run together, each choice of a request being one; the executor may allow
	// fewer.
	MaxSequences int
	// MaxWaiting is the most requests that wait besides, and the most calls that wait for embeddings or for an adapter; one
	// more is refused with engine.ErrBusy.
	MaxWaiting int
	// StepTokens is the most tokens in one step. A stream waits for the next token as long as one step takes, so a small
	// number keeps streams smooth while prompts are computed, and a large one computes prompts faster. StepTokensCPU and
	// StepTokensGPU are good ones.
	StepTokens int
	// Gather is how long the first step from idle waits for requests that come together, at most; 0 starts at once. It
	// waits so long only while other calls are seen to come: see gather. 20 ms is a good one.
	Gather time.Duration
	// AgeSteps is how many steps of waiting outweigh one unit of priority. A request of priority p starts at the latest when
	// those have ended that were inside when it came, or that came with a priority q > p in the (q-p)·AgeSteps steps after
	// it. 0: DefaultAgeSteps.
	AgeSteps int
	// MaxIdle is the most sequences that are kept only so that their prefix can be hit; the executor may allow fewer. 0:
	// DefaultMaxIdle. Below 0: none.
	MaxIdle int
	// IdleBlocks is the most KV blocks of 16 tokens that they hold alone. On libllama idle cells cost time in every step, for
	// a model of 0.5B parameters 0.6 ms per 1024 of them (a step of one stream takes 30 ms), but a hit of 512 tokens saves
	// seconds. 0: half of all blocks, at most DefaultIdleBlocks.
	IdleBlocks int
	// Sampler makes the sampler of one choice. nil: sampling.New.
	Sampler func(engine.Sampling, sampling.Options) Sampler
	// JSONObject makes the constraint of one choice whose format is engine.FormatJSONObject. nil: the format is refused.
	JSONObject func() sampling.Constraint
	// Clock measures steps and waits.
	Clock clock.Clock
	Log   logr.Logger
	// Observer, where set, is told of steps and requests, for metrics.
	Observer Observer
	// Progress, where set, is told what the executor is at, for those who look whether it still moves.
	Progress *Progress
	// Broken is called once, from the scheduler's goroutine, when the executor can't go on and the process must end. The
	// requests end after it has returned.
	Broken func(error)
}

const (
	// StepTokensCPU is a good StepTokens for a CPU, where a step of it takes some tenths of a second.
	StepTokensCPU = 128
	// StepTokensGPU is a good one for a GPU.
	StepTokensGPU = 512
	// DefaultAgeSteps makes a request that is 100 below the others wait for 1600 steps: a minute or so.
	DefaultAgeSteps = 16
	// DefaultMaxIdle leaves half of the sequences that libllama can have to those that run.
	DefaultMaxIdle = 128
	// DefaultIdleBlocks is 4096 tokens.
	DefaultIdleBlocks = 256
)

// withDefaults fills in what was left out.
func (o Options) withDefaults(caps engine.Caps) Options {
	if o.AgeSteps == 0 {
		o.AgeSteps = DefaultAgeSteps
	}
	switch {
	case o.MaxIdle == 0:
		o.MaxIdle = DefaultMaxIdle
	case o.MaxIdle < 0:
		o.MaxIdle = 0
	}
	if o.IdleBlocks == 0 {
		o.IdleBlocks = min(max(caps.KVTokens/kvcache.BlockTokens/2, 1), DefaultIdleBlocks)
	}
	if o.Progress == nil {
		o.Progress = &Progress{}
	}
	if o.Sampler == nil {
		o.Sampler = func(s engine.Sampling, o sampling.Options) Sampler { return sampling.New(s, o) }
	}
	return o
}
