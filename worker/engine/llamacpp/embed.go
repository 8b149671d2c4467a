package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/worker/engine"
)

const (
	// embedSequences is how many inputs are computed together.
	embedSequences = 16
	// embedCells is the size of the context that is kept between calls. Longer inputs get one of their own, which is freed
	// at once: its cells cost as much as those of generation.
	embedCells = 256
	// embedOutputs bounds the memory of a pass in bytes: the library computes the logits of every token of it, asked for or
	// not.
	embedOutputs = 16 << 20
	// The least and the most tokens of a pass.
	leastEmbedTokens, mostEmbedTokens = 32, 512
)

// embedder makes embeddings of a decoder's last hidden states, in a context of its own beside that of generation: the
// library gives either logits of few tokens or the states of all, and the sequences of generation stay untouched. The
// context is made for the first input.
type embedder struct {
	lib     *library
	model   *model
	options *Options
	abort   *abort
	pooling llama.PoolingType
	vocab   int
	width   int              // of a vector
	tokens  int              // of one pass
	begin   func(tokens int) // called before each pass, where set

	context llama.Context // 0: there is none
	memory  llama.Memory
	batch   llama.Batch
	cells   int // of the context
}

// newEmbedder returns nil for a model that ranks instead of embedding.
func newEmbedder(o *Options, lib *library, m *model, a *abort) *embedder {
	e := &embedder{lib: lib, model: m, options: o, abort: a, pooling: m.pooling(), vocab: int(llama.VocabNTokens(llama.ModelGetVocab(m.handle))),
		width: int(llama.ModelNEmbdOut(m.handle))}
	if e.pooling == llama.PoolingTypeRank {
		return nil
	}
	e.tokens = min(max(embedOutputs/(4*e.vocab)/leastEmbedTokens*leastEmbedTokens, leastEmbedTokens), mostEmbedTokens)
	return e
}

// EachPass makes Embed call begin before each of its passes, with the tokens that it has.
func (x *executor) EachPass(begin func(tokens int)) {
	if x.embedder != nil {
		x.embedder.begin = begin
	}
}

// run returns the vectors of inputs. It works on as many of them at a time as the context has room for.
func (e *embedder) run(ctx context.Context, inputs [][]engine.Token) (vectors [][]float32, err error) {
	for i, in := range inputs {
		if err := e.check(i, in); err != nil {
			return nil, err
		}
	}
	defer func() {
		if e.cells > embedCells || err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	for len(inputs) > 0 {
		n, cells := group(inputs)
		if err := e.open(cells); err != nil {
			return nil, err
		}
		pools := make([]pool, n)
		for i := range pools {
			pools[i] = pool{kind: e.pooling, sum: make([]float64, e.width), length: len(inputs[i])}
		}
		if err := e.compute(ctx, inputs[:n], pools); err != nil {
			return nil, err
		}
		for i := range pools {
			v, err := pools[i].unit()
			if err != nil {
				return nil, fmt.Errorf("embed input %d: %w", len(vectors), err)
			}
			vectors = append(vectors, v)
		}
		inputs = inputs[n:]
	}
	return vectors, nil
}

func (e *embedder) check(i int, in []engine.Token) error {
	if len(in) == 0 {
		return invalid("input", "input %d is empty", i)
	}
	if most := e.model.mostTokens(e.options); len(in) > most {
		return &engine.InvalidError{Field: "input", Code: engine.CodeContextLength,
			Message: fmt.Sprintf("input %d has %d tokens, the model takes at most %d", i, len(in), most)}
	}
	for _, t := range in {
		if t < 0 || int(t) >= e.vocab {
			return invalid("input", "input %d has the token %d, which is none of %d", i, t, e.vocab)
		}
	}
	return nil
}

// group returns how many of the inputs, at least one, are computed together, and the cells that they take.
func group(inputs [][]engine.Token) (n, cells int) {
	for n < len(inputs) && n < embedSequences && (n == 0 || cells+len(inputs[n]) <= embedCells) {
		cells += len(inputs[n])
		n++
	}
	return n, cells
}

// open makes the context empty, and a larger one where it is too small.
func (e *embedder) open(cells int) error {
	if e.context != 0 && e.cells >= cells {
		if err := llama.MemoryClear(e.memory, false); err != nil {
			return fatal("embed: %w", err)
		}
		return nil
	}
	if err := e.close(); err != nil {
		return err
	}
	params := e.lib.contextParams(e.options, e.abort)
	params.NCtx = uint32(max(cells, embedCells))
	params.NBatch, params.NUbatch = uint32(e.tokens), uint32(e.tokens)
	params.NSeqMax, params.NOutputsMax = embedSequences, uint32(e.tokens)
	params.Embeddings = 1
	params.PoolingType = llama.PoolingTypeNone // the library pools within a pass only, and inputs may need several
	c, err := e.lib.newContext(e.model.handle, params)
	if err != nil {
		return fmt.Errorf("embed: llama.cpp can't make a context of %d tokens: %w", params.NCtx, err)
	}
	e.context, e.cells, e.batch = c, int(llama.NCtx(c)), llama.BatchInit(int32(e.tokens), 0, 1)
	e.memory, err = llama.GetMemory(c)
	return err
}

// place is where a token of a pass comes from.
type place struct{ input, at int }

// compute runs inputs, one sequence each, in passes of at most e.tokens tokens, and gives every state to its pool.
func (e *embedder) compute(ctx context.Context, inputs [][]engine.Token, pools []pool) error {
	places := make([]place, 0, e.tokens)
	_ = e.batch.Clear()
	for i, in := range inputs {
		for at, t := range in {
			if err := e.batch.Add(llama.Token(t), llama.Pos(at), []llama.SeqId{llama.SeqId(i)}, true); err != nil {
				return fatal("embed: %w", err)
			}
			places = append(places, place{i, at})
			last := i == len(inputs)-1 && at == len(in)-1
			if len(places) < e.tokens && !last {
				continue
			}
			if err := e.pass(ctx, places, pools); err != nil {
				return err
			}
			places = places[:0]
			_ = e.batch.Clear()
		}
	}
	return nil
}

// pass runs the batch.
func (e *embedder) pass(ctx context.Context, places []place, pools []pool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("embed: %w: %w", engine.ErrAborted, context.Cause(ctx))
	}
	if e.begin != nil {
		e.begin(len(places))
	}
	code, err := e.abort.decode(ctx, e.context, e.batch)
	switch {
	case code == decodeAborted && err == nil:
		return fmt.Errorf("embed: %w: %w", engine.ErrAborted, context.Cause(ctx))
	case err != nil || code != decodeDone:
		return fatal("embed: llama.cpp returned %d for %d tokens: %s", code, len(places), lines.errors())
	}
	for i, p := range places {
		state, err := llama.GetEmbeddingsIth(e.context, int32(i), int32(e.width))
		if err != nil || state == nil {
			return fatal("embed: llama.cpp has no state of token %d of the batch", i)
		}
		pools[p.input].add(p.at, state)
	}
	return nil
}

// close frees the context.
func (e *embedder) close() error {
	if e == nil || e.context == 0 {
		return nil
	}
	err := errors.Join(llama.BatchFree(e.batch), llama.Free(e.context))
	e.context, e.cells = 0, 0
	return err
}

// pool makes a vector of the states of an input's tokens.
type pool struct {
	kind   llama.PoolingType
	length int // tokens of the input
	sum    []float64
}

// add takes the state of the token at a place.
func (p *pool) add(at int, state []float32) {
	switch p.kind {
	case llama.PoolingTypeCLS:
		if at != 0 {
			return
		}
	case llama.PoolingTypeLast:
		if at != p.length-1 {
			return
		}
	}
	for i, x := range state {
		p.sum[i] += float64(x)
	}
}

// unit returns the pooled vector at length 1. The mean is the sum at another length.
func (p *pool) unit() ([]float32, error) {
	squares := 0.0
	for _, x := range p.sum {
		squares += x * x
	}
	length := math.Sqrt(squares)
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return nil, fmt.Errorf("the model made a vector of length %v", length)
	}
	out := make([]float32, len(p.sum))
	for i, x := range p.sum {
		out[i] = float32(x / length)
	}
	return out, nil
}
