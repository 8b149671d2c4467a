package scheduler

import (
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// maxPriority bounds priorities, so that no rank overflows, and maxChoices the choices of a request.
const (
	maxPriority = 1 << 20
	maxChoices  = 128
)

// limits are the numbers that decisions depend on; they never change.
type limits struct {
	sequences  int // that run together
	waiting    int // requests that wait besides
	stepTokens int // tokens in one step
	age        int // steps of waiting that outweigh one unit of priority
	context    int // tokens of one request
	vocab      int
	cache      kvcache.Options
}

// newLimits fits what is asked for to what the executor can do.
func newLimits(o Options, info engine.Info, caps engine.Caps) (limits, error) {
	l := limits{
		sequences: min(o.MaxSequences, caps.MaxSeqs),
		waiting:   o.MaxWaiting,
		age:       o.AgeSteps,
		context:   info.ContextTokens,
		vocab:     caps.Vocab,
		cache: kvcache.Options{
			Blocks: caps.KVTokens / kvcache.BlockTokens, Sequences: caps.MaxSeqs,
			MaxIdle: min(o.MaxIdle, caps.MaxSeqs-1), IdleBlocks: o.IdleBlocks,
		},
	}
	// Every running stream has its token in every step, and some prompt always moves on.
	l.stepTokens = min(max(o.StepTokens, l.sequences+kvcache.BlockTokens), caps.MaxStepTokens)
	switch {
	case l.sequences < 1 || l.waiting < 1 || l.cache.Blocks < 1 || l.context < 2 || l.age < 0:
		return l, fmt.Errorf("scheduler: %d sequences, %d waiting, %d KV blocks, a context of %d tokens and %d steps of age can't serve a request",
			l.sequences, l.waiting, l.cache.Blocks, l.context, l.age)
	case l.stepTokens <= l.sequences:
		return l, fmt.Errorf("scheduler: a step of %d tokens leaves no room for prompts beside %d sequences", l.stepTokens, l.sequences)
	}
	return l, nil
}

// grant is what each choice of a request may make.
type grant struct {
	most  int // tokens of output
	least int // tokens before it may end by itself
}

// judge returns what a request with a prompt of the given length may use, or an *engine.InvalidError where it can never
// run. field is where the prompt came from.
func (l limits) judge(prompt int, field string, q *engine.Request) (grant, error) {
	room, holder, code := l.context, "the context", engine.CodeContextLength
	if cells := l.cache.Blocks * kvcache.BlockTokens; cells < room {
		room, holder, code = cells, "the KV cache", ""
	}
	invalid := func(field, code, format string, args ...any) (grant, error) {
		return grant{}, &engine.InvalidError{Field: field, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	most := q.MaxTokens
	switch {
	case prompt == 0:
		return invalid(field, "", "the prompt has no tokens")
	case prompt >= room:
		return invalid(field, code, "the prompt has %d tokens; %s holds %d, output included", prompt, holder, room)
	case most < 0 || most > room-prompt: // not prompt+most > room, which may overflow
		return invalid("max_tokens", code, "the prompt has %d tokens and max_tokens is %d; %s holds %d", prompt, most, holder, room)
	case most == 0:
		most = room - prompt
	}
	switch {
	case q.MinTokens < 0 || q.MinTokens > most:
		return invalid("min_tokens", "", "min_tokens is %d; the request may make 0 to %d tokens", q.MinTokens, most)
	case q.Choices < 0 || q.Choices > maxChoices:
		return invalid("n", "", "n is %d; 1 to %d are possible", q.Choices, maxChoices)
	}
	return grant{most: most, least: q.MinTokens}, nil
}

func blocksFor(tokens int) int { return (tokens + kvcache.BlockTokens - 1) / kvcache.BlockTokens }
