package scheduler

import (
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Observer is told what happens, for metrics. The scheduler's goroutine calls it between two steps, without a lock held, so
// what it takes delays every stream. The records and their slices are valid during the call only.
type Observer interface {
	// Stepped is called after each forward pass.
	Stepped(*StepRecord)
	// Ended is called once for each request that was queued.
	Ended(*RequestRecord)
}

// StepRecord is one step.
type StepRecord struct {
	// Took is the time of the forward pass and of choosing tokens, Sampling the latter's part.
	Took, Sampling time.Duration
	// Prefill and Decode are the tokens computed for prompts and for streams, Sequences those that they belong to.
	Prefill, Decode, Sequences int
	// Preempted is how many sequences gave way when the step was formed.
	Preempted int
	// Aborted: the step was broken off, and nothing of it counts.
	Aborted bool
	// FirstTokens are the times from arrival to the first token of the requests that had it in this step, TokenGaps the times
	// since the token before of those choices that had a further one.
	FirstTokens, TokenGaps []time.Duration
}

// RequestRecord is a request that has ended.
type RequestRecord struct {
	// Queue is the time from arrival to the first step with tokens of it, FirstToken to its first token; -1 where there was
	// none. Whole is the time to its end.
	Queue, FirstToken, Whole time.Duration
	// Prompt tokens, of which Cached were in the cache; Completion tokens of all choices that were made here.
	Prompt, Cached, Completion int
	// Preemptions is how often a choice gave way.
	Preemptions int
	// Finish is why its last choice ended; empty where Err says why the request did.
	Finish engine.FinishReason
	Err    error
}

// record is what became of r.
func (r *request) record(now time.Time, why error) RequestRecord {
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return -1
		}
		return t.Sub(r.arrived)
	}
	out := RequestRecord{
		Queue: since(r.started), FirstToken: since(r.first), Whole: now.Sub(r.arrived),
		Prompt: r.out.prompt, Cached: r.cached, Completion: -r.made, Preemptions: r.preemptions, Err: why,
	}
	for _, run := range r.runs {
		out.Completion += run.generated
	}
	if why == nil {
		out.Finish = r.finish
	}
	return out
}
