// Package peers starts the engines that are compared, our worker, llama-server and vLLM, asks them, and notes when their
// tokens come; and it runs llama-batched-bench. All get the same prompts, as tokens, and make as many tokens as were asked
// for, always the most probable one. What is asked, and what the moments mean, is the caller's and package timeline's.
package peers

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// Threads is how many threads compute in every engine. More than there are free cores would measure how ggml's threads wait
// for each other, which they do by spinning.
const Threads = 1

// Sequences and ContextTokens are what the worker and llama-batched-bench are started with.
const (
	Sequences     = 16
	ContextTokens = 8192
)

// serverTokens is the KV cache of llama-server. Its sequences share no prefix, so that it needs more.
const serverTokens = 16384

// Request is what an engine is asked.
type Request struct {
	Prompt    []uint32
	MaxTokens int
	// Salt keeps a request from sharing KV cache with requests of others. Only the worker heeds it.
	Salt string
	// Each, where set, is called with the tokens so far when some have come.
	Each func(tokens int)
}

// Engine answers requests.
type Engine interface {
	// Ask sends a request and reads its answer to the end. An answer with another number of tokens than asked for is an
	// error.
	Ask(ctx context.Context, q Request) (timeline.Answer, error)
}

// Crowd asks all at once, and returns when all have been answered.
func Crowd(ctx context.Context, e Engine, all []Request) ([]timeline.Answer, error) {
	answers := make([]timeline.Answer, len(all))
	group, ctx := errgroup.WithContext(ctx)
	for i, q := range all {
		group.Go(func() (err error) {
			answers[i], err = e.Ask(ctx, q)
			return err
		})
	}
	return answers, group.Wait()
}

// noted is an answer that is being read.
type noted struct {
	timeline.Answer
	each   func(int)
	tokens int
}

func note(q Request) *noted { return &noted{Answer: timeline.Answer{Sent: time.Now()}, each: q.Each} }

// came notes tokens that have come.
func (n *noted) came(tokens int) {
	n.Arrivals = append(n.Arrivals, timeline.Arrival{At: time.Now(), Tokens: tokens})
	if n.tokens += tokens; n.each != nil {
		n.each(n.tokens)
	}
}

// whole returns the answer if it is what was asked for.
func (n *noted) whole(q Request) (timeline.Answer, error) {
	if n.Completion != q.MaxTokens || n.Prompt != len(q.Prompt) || len(n.Arrivals) == 0 {
		return n.Answer, fmt.Errorf("an answer of %d tokens in %d pieces to a prompt of %d, where %d tokens were asked for after %d",
			n.Completion, len(n.Arrivals), n.Prompt, q.MaxTokens, len(q.Prompt))
	}
	return n.Answer, nil
}
