package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// The results of llama_decode.
const (
	decodeDone    = 0
	decodeNoKV    = 1
	decodeAborted = 2
)

// executor is a context of the library. One goroutine calls it: the library's contexts know no locks. Its methods refuse a
// second one that they meet.
type executor struct {
	caps    engine.Caps
	model   llama.Model
	context llama.Context
	memory  llama.Memory
	batch   llama.Batch
	abort   *abort
	ear     ear
	onClose func() // ends what else uses the model, before it is freed

	busy     atomic.Bool // a call runs
	closed   bool
	broken   error
	ledger   *ledger
	adapters adapters
	embedder *embedder // nil: the model makes no embeddings
	result   engine.Result
	last     []int32 // index in the batch of each item's last token
}

func newExecutor(o *Options, lib *library, m *model, c llama.Context, a *abort) *executor {
	memory, _ := llama.GetMemory(c) // fails for a null context only
	var used []llama.GGMLBackendDevice
	if m.onGPU {
		used = gpus()
	}
	x := &executor{
		caps: engine.Caps{
			Device: device(used, o.Threads), Vocab: int(llama.VocabNTokens(llama.ModelGetVocab(m.handle))), MaxSeqs: o.MaxSequences,
			KVTokens: int(llama.NCtx(c)), MaxStepTokens: int(llama.NBatch(c)), KVBytesPerToken: m.cellBytes(o.KVType),
			AbortMidStep: !m.onGPU, Adapters: true, Logprobs: true,
		},
		model: m.handle, context: c, memory: memory, abort: a,
		batch:    llama.BatchInit(int32(llama.NBatch(c)), 0, 1),
		adapters: newAdapters(lib, m, c),
		embedder: newEmbedder(o, lib, m, a),
		ear:      ear{lib: lib, context: c, abort: a, open: true},
	}
	x.caps.Embeddings = x.embedder != nil
	x.ledger = newLedger(x.caps.KVTokens, x.caps.MaxSeqs)
	return x
}

// Caps implements engine.Executor.
func (x *executor) Caps() engine.Caps { return x.caps }

// enter begins a call named what; leave must follow, with its error, where enter returned none.
func (x *executor) enter(what string) error {
	if !x.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: another goroutine is in this executor; one owns it", what)
	}
	err := x.broken
	if x.closed {
		err = fatal("%s: the executor is closed", what)
	}
	if err != nil {
		x.busy.Store(false)
	}
	return err
}

// leave ends a call. After a fatal error nothing runs any more.
func (x *executor) leave(err error) {
	if errors.Is(err, engine.ErrFatal) {
		x.broken = err
	}
	x.busy.Store(false)
}

// Step implements engine.Executor. A batch that breaks the contract (positions that don't continue their sequence, unknown
// tokens, sequences or adapters, too much) is an error that changes nothing. After ErrAborted the cells of the items are
// freed.
func (x *executor) Step(ctx context.Context, b *engine.Batch) (result *engine.Result, err error) {
	if err := x.enter("step"); err != nil {
		return nil, err
	}
	defer func() { x.leave(err) }()
	if err := x.adapters.known(b.Adapter); err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	if err := x.ledger.begin(b, x.caps.Vocab, x.caps.MaxStepTokens, x.caps.MaxSeqs); err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	return x.run(ctx, b)
}

// LoadAdapter implements engine.Adapting. The error of a file that can't be used is an *engine.LoadError.
func (x *executor) LoadAdapter(a engine.Adapter) (err error) {
	if err := x.enter("load adapter " + a.Name); err != nil {
		return err
	}
	defer func() { x.leave(err) }()
	return x.adapters.load(a)
}

// UnloadAdapter implements engine.Adapting.
func (x *executor) UnloadAdapter(name string) (err error) {
	if err := x.enter("unload adapter " + name); err != nil {
		return err
	}
	defer func() { x.leave(err) }()
	return x.adapters.unload(name)
}

// Embed implements engine.Embedder. It runs beside the KV cells of the sequences and leaves them as they are.
func (x *executor) Embed(ctx context.Context, inputs [][]engine.Token) (vectors [][]float32, err error) {
	if err := x.enter("embed"); err != nil {
		return nil, err
	}
	defer func() { x.leave(err) }()
	if x.embedder == nil {
		return nil, invalid("input", "this model makes no embeddings")
	}
	return x.embedder.run(ctx, inputs)
}

// run does what the ledger has found to be possible.
func (x *executor) run(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	for _, op := range b.KV {
		if err := x.change(op); err != nil {
			return nil, err
		}
	}
	x.result.Logits = x.result.Logits[:0]
	switch {
	case len(b.Items) == 0:
		x.ledger.commit(nil)
		return &x.result, nil
	case ctx.Err() != nil:
		x.ledger.commit(nil)
		return nil, fmt.Errorf("%w before its pass began: %w", engine.ErrAborted, context.Cause(ctx))
	}
	if err := x.adapters.apply(b.Adapter); err != nil {
		return nil, err
	}
	if err := x.fill(b.Items); err != nil {
		return nil, err
	}
	x.ear.hear(b.Items)
	code, err := x.abort.decode(ctx, x.context, x.batch)
	switch {
	case err != nil:
		return nil, fatal("decode: %w", err)
	case code == decodeDone:
		x.ledger.commit(b.Items)
		return x.outputsOf(b.Items)
	case code == decodeAborted:
		return nil, x.takeBack(ctx, b.Items)
	case code == decodeNoKV:
		return nil, fatal("decode: llama.cpp found no cells for %d tokens where %d of %d were counted as free", x.batch.NTokens,
			x.caps.KVTokens-x.ledger.used, x.caps.KVTokens)
	}
	return nil, fatal("decode: llama.cpp returned %d for a batch of %d tokens: %s", code, x.batch.NTokens, lines.errors())
}

// change runs one operation on the library's cells.
func (x *executor) change(op engine.KVOp) error {
	dst := llama.SeqId(op.Dst)
	from := llama.Pos(0)
	if op.Kind == engine.KVTruncate {
		from = llama.Pos(op.N)
	}
	if ok, err := llama.MemorySeqRm(x.memory, dst, from, -1); err != nil || !ok {
		return fatal("free the cells of sequence %d from %d on: llama.cpp refuses", op.Dst, from)
	}
	if op.Kind == engine.KVFork && op.N > 0 {
		if err := llama.MemorySeqCp(x.memory, llama.SeqId(op.Src), dst, 0, llama.Pos(op.N)); err != nil {
			return fatal("fork sequence %d to %d: %w", op.Src, op.Dst, err)
		}
	}
	return nil
}

// fill makes the library's batch of items.
func (x *executor) fill(items []engine.Item) error {
	_ = x.batch.Clear()
	x.last = x.last[:0]
	seq := make([]llama.SeqId, 1)
	for _, it := range items {
		seq[0] = llama.SeqId(it.Seq)
		for i, t := range it.Tokens {
			want := it.Logits && i == len(it.Tokens)-1
			if err := x.batch.Add(llama.Token(t), llama.Pos(it.Pos+i), seq, want); err != nil {
				return fatal("fill the batch: %w", err)
			}
		}
		x.last = append(x.last, x.batch.NTokens-1)
	}
	return nil
}

// outputsOf points to the logits in the library's memory.
func (x *executor) outputsOf(items []engine.Item) (*engine.Result, error) {
	for i, it := range items {
		var row []float32
		if it.Logits {
			var err error
			if row, err = llama.GetLogitsIth(x.context, x.last[i], x.caps.Vocab); err != nil || row == nil {
				return nil, fatal("decode: llama.cpp has no logits for token %d of the batch", x.last[i])
			}
		}
		x.result.Logits = append(x.result.Logits, row)
	}
	return &x.result, nil
}

// takeBack frees the cells that an aborted step may have filled.
func (x *executor) takeBack(ctx context.Context, items []engine.Item) error {
	x.ledger.commit(nil)
	for _, it := range items {
		if ok, err := llama.MemorySeqRm(x.memory, llama.SeqId(it.Seq), llama.Pos(it.Pos), -1); err != nil || !ok {
			return fatal("free the cells of an aborted step of sequence %d: llama.cpp refuses", it.Seq)
		}
	}
	return fmt.Errorf("%w: %w", engine.ErrAborted, context.Cause(ctx))
}

// warm runs steps of so many tokens, so that the weights are read, the graph is built and the kernels of a GPU are compiled
// before the first request. It returns how long the last of them took.
func (x *executor) warm(steps []int, c clock.PassiveClock) (took time.Duration, err error) {
	for _, n := range steps {
		tokens := make([]engine.Token, n)
		for i := range tokens {
			tokens[i] = engine.Token(i % x.caps.Vocab)
		}
		begun := c.Now()
		if _, err := x.Step(context.Background(), &engine.Batch{Items: []engine.Item{{Tokens: tokens, Logits: true}}}); err != nil {
			return 0, fmt.Errorf("warm up with %d tokens: %w", n, err)
		}
		took = c.Since(begun)
		if _, err := x.Step(context.Background(), &engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop}}}); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// Close implements engine.Executor. It may be called more than once.
func (x *executor) Close() error {
	if !x.busy.CompareAndSwap(false, true) {
		return errors.New("close: another goroutine is in this executor; one owns it")
	}
	defer x.busy.Store(false)
	if x.closed {
		return nil
	}
	x.closed = true
	x.onClose()
	err := errors.Join(x.embedder.close(), llama.BatchFree(x.batch), llama.Free(x.context), llama.ModelFree(x.model)) // frees adapters too
	x.abort.pin.Unpin()
	return err
}
