package scheduler

import (
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// blockTokens is the size of a KV block.
const blockTokens = 16

// openOutput is the least output that a request without max_tokens is sure of, where the context has that much.
const openOutput = 128

// limits are the numbers that decisions depend on; they never change.
type limits struct {
	sequences  int // requests that run together
	waiting    int // requests that wait besides
	stepTokens int // tokens in one step
	blocks     int // KV blocks
	context    int // tokens of one request
	vocab      int
}

// newLimits fits what is asked for to what the executor can do.
func newLimits(o Options, info engine.Info, caps engine.Caps) (limits, error) {
	l := limits{
		sequences: min(o.MaxSequences, caps.MaxSeqs),
		waiting:   o.MaxWaiting,
		blocks:    caps.KVTokens / blockTokens,
		context:   info.ContextTokens,
		vocab:     caps.Vocab,
	}
	// Every running stream has its token in every step, and some prompt always moves on.
	l.stepTokens = min(max(o.StepTokens, l.sequences+blockTokens), caps.MaxStepTokens)
	switch {
	case l.sequences < 1 || l.waiting < 1 || l.blocks < 1 || l.context < 2:
		return l, fmt.Errorf("scheduler: %d sequences, %d waiting, %d KV blocks and a context of %d tokens can't serve a request",
			l.sequences, l.waiting, l.blocks, l.context)
	case l.stepTokens <= l.sequences:
		return l, fmt.Errorf("scheduler: a step of %d tokens leaves no room for prompts beside %d sequences", l.stepTokens, l.sequences)
	}
	return l, nil
}

// grant is what a request may use.
type grant struct {
	limit   int // most tokens of output
	reserve int // tokens whose cells are booked before it starts
}

// judge returns what a prompt of the given length may use, or an *engine.InvalidError where it can never run. Without
// max_tokens a request may use the whole context, but books only its share of the KV cache at first, takes more block by
// block, and ends with reason length where no block is free.
func (l limits) judge(prompt, maxTokens int) (grant, error) {
	room, holder := l.context, "the context"
	if cells := l.blocks * blockTokens; cells < room {
		room, holder = cells, "the KV cache"
	}
	switch {
	case prompt == 0:
		return grant{}, &engine.InvalidError{Field: "messages", Message: "the prompt has no tokens"}
	case prompt >= room:
		return grant{}, &engine.InvalidError{Field: "messages",
			Message: fmt.Sprintf("the prompt has %d tokens; %s holds %d, output included", prompt, holder, room)}
	case maxTokens == 0:
		limit := room - prompt
		share := l.blocks / l.sequences * blockTokens
		return grant{limit: limit, reserve: prompt + min(limit, max(share-prompt, openOutput))}, nil
	case maxTokens > room-prompt: // not prompt+maxTokens > room, which may overflow
		return grant{}, &engine.InvalidError{Field: "max_tokens",
			Message: fmt.Sprintf("the prompt has %d tokens and max_tokens is %d; %s holds %d", prompt, maxTokens, holder, room)}
	}
	return grant{limit: maxTokens, reserve: prompt + maxTokens}, nil
}

func blocksFor(tokens int) int { return (tokens + blockTokens - 1) / blockTokens }

// admit starts queued requests in order, as long as a sequence and all blocks that the first of them books are free.
// None overtakes another, so none waits for ever.
func (s *state) admit() {
	for len(s.queue) > 0 && len(s.freeSeqs) > 0 {
		r := s.queue[0]
		need := blocksFor(r.grant.reserve)
		if need > s.freeBlocks {
			return
		}
		s.queue = s.queue[1:]
		last := len(s.freeSeqs) - 1
		r.seq, s.freeSeqs = s.freeSeqs[last], s.freeSeqs[:last]
		r.phase, r.blocks = prefilling, need
		s.freeBlocks -= need
		s.active = append(s.active, r)
	}
}

// reserve makes sure that r has blocks for so many tokens, and returns false where none is free.
func (s *state) reserve(r *request, tokens int) bool {
	if more := blocksFor(tokens) - r.blocks; more > 0 {
		if more > s.freeBlocks {
			return false
		}
		r.blocks += more
		s.freeBlocks -= more
	}
	return true
}
