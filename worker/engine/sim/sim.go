// Package sim is an engine.Executor and engine.Vocabulary that run no model: a step takes as long as a timing model
// says, on a clock that is handed in, and the logits spell a given text or are a pseudo-random function of what the
// sequence's cells hold. It keeps books of its cells as a real device does, and holds its caller to the Executor's
// contract: a batch that a real device would choke on is an error. It is for tests and simulations only. No binary can be
// told to use it: no driver has its name.
package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// The vocabulary: a token for each byte, and two special ones without text.
const (
	// End ends generation.
	End engine.Token = 256
	// Answer stands between a prompt and its answer. Render ends a chat with it.
	Answer engine.Token = 257

	vocab = 258
)

// Options describe the device.
type Options struct {
	// Text is what every answer spells, followed by End. An empty one makes every answer empty.
	Text string
	// Random answers instead with letters that are a pseudo-random function of the sequence's cells: of their tokens, their
	// positions and the adapters that they were computed with. On average End comes after some dozens of them.
	Random bool
	// ContextTokens, Sequences and KVTokens are the device's limits.
	ContextTokens, Sequences, KVTokens int
	// StepTokens is the most tokens in a step. 0: KVTokens.
	StepTokens int
	// Adapters and Embeddings say what the device can do besides.
	Adapters, Embeddings bool
	// AbortMidStep: a step ends as soon as its context does, and leaves cells that hold nothing of use.
	AbortMidStep bool
	// Clock passes during steps.
	Clock clock.Clock
	// Step is the time of an empty step, to which each prompt token and each stream add theirs.
	Step, PerPromptToken, PerStream time.Duration
	// Before, where set, is called with each batch before it runs. What it returns fails the step.
	Before func(b *engine.Batch) error
	// HiddenTokens is how many fewer cells there are than Caps says, for a device that lies.
	HiddenTokens int
}

// Device is the Executor.
type Device struct {
	o        Options
	cells    *cells
	adapters map[string]uint64 // what they add to the hash of a token
	loads    uint64
	logits   [][]float32
	result   engine.Result
	closed   bool
}

// New returns a device and its vocabulary as a loaded model.
func New(o Options) *engine.Loaded {
	if o.StepTokens == 0 {
		o.StepTokens = o.KVTokens
	}
	d := &Device{o: o, cells: newCells(o.Sequences, o.KVTokens), adapters: map[string]uint64{"": 0}}
	return &engine.Loaded{
		Executor:   d,
		Vocabulary: Vocabulary{},
		Info:       engine.Info{Model: "simulated", ContextTokens: o.ContextTokens, Vocab: vocab, Caps: d.Caps()},
	}
}

// Caps says what the device can do.
func (d *Device) Caps() engine.Caps {
	return engine.Caps{
		Device: "simulated", Vocab: vocab, MaxSeqs: d.o.Sequences, KVTokens: d.o.KVTokens,
		MaxStepTokens: d.o.StepTokens, KVBytesPerToken: 1, AbortMidStep: d.o.AbortMidStep,
		Embeddings: d.o.Embeddings, Adapters: d.o.Adapters,
	}
}

// Cells returns how many KV cells are in use; one that several sequences share counts once. Call it from the goroutine that
// calls Step, or when none does.
func (d *Device) Cells() int { return d.cells.used }

// Held returns how many cells a sequence holds. It is called as Cells is.
func (d *Device) Held(seq engine.Seq) int { return d.cells.holds(seq) }

// Step runs a batch. A batch that breaks the contract is engine.ErrFatal.
func (d *Device) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	if d.closed {
		return nil, fmt.Errorf("step after close: %w", engine.ErrFatal)
	}
	if d.o.Before != nil {
		if err := d.o.Before(b); err != nil {
			return nil, err
		}
	}
	salt, ok := d.adapters[b.Adapter]
	if !ok {
		return nil, fmt.Errorf("step with adapter %q, which is not loaded: %w", b.Adapter, engine.ErrFatal)
	}
	if err := d.cells.begin(b, d.o.KVTokens-d.o.HiddenTokens, d.o.StepTokens); err != nil {
		return nil, err
	}
	if !d.pass(ctx, d.duration(b)) {
		d.spoil(b)
		return nil, engine.ErrAborted
	}
	for _, item := range b.Items {
		for _, t := range item.Tokens {
			d.cells.compute(item.Seq, t, salt)
		}
	}
	return d.results(b), nil
}

// pass lets the time of a step pass. It returns false where ctx ended.
func (d *Device) pass(ctx context.Context, t time.Duration) bool {
	if !d.o.AbortMidStep {
		d.o.Clock.Sleep(t)
		return ctx.Err() == nil
	}
	if t > 0 {
		timer := d.o.Clock.NewTimer(t)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// spoil leaves what an aborted step leaves: cells of some of the items, with anything in them.
func (d *Device) spoil(b *engine.Batch) {
	for _, item := range b.Items {
		for range (len(item.Tokens) + 1) / 2 {
			d.cells.compute(item.Seq, End, mix(uint64(item.Pos)))
		}
	}
}

func (d *Device) duration(b *engine.Batch) time.Duration {
	if len(b.Items) == 0 {
		return 0
	}
	t := d.o.Step
	for _, item := range b.Items {
		if len(item.Tokens) == 1 && item.Logits {
			t += d.o.PerStream
		} else {
			t += time.Duration(len(item.Tokens)) * d.o.PerPromptToken
		}
	}
	return t
}

func (d *Device) results(b *engine.Batch) *engine.Result {
	d.result.Logits = d.result.Logits[:0]
	for i, item := range b.Items {
		var row []float32
		if item.Logits {
			for len(d.logits) <= i {
				d.logits = append(d.logits, make([]float32, vocab))
			}
			row = d.logits[i]
			d.fill(row, item.Seq)
		}
		d.result.Logits = append(d.result.Logits, row)
	}
	return &d.result
}

// fill writes the logits after a sequence's last cell.
func (d *Device) fill(row []float32, seq engine.Seq) {
	clear(row)
	last := d.cells.last(seq)
	if !d.o.Random {
		row[d.spell(last, d.cells.holds(seq))] = 10
		return
	}
	for i := range letters {
		row['a'+i] = float32(mix(last.hash+uint64(i))>>40) / (1 << 20) // below 16
	}
	row[End] = float32(mix(last.hash+uint64(End))>>40) / (1 << 20)
}

// letters is how many letters a random answer is made of.
const letters = 26

// spell returns the token that follows: the next byte of the text after the last Answer, then End. A prompt without
// Answer is answered with the byte of the text at its length, and never ends.
func (d *Device) spell(last content, length int) engine.Token {
	switch n := int(last.since); {
	case d.o.Text == "":
		return End
	case n < 0:
		return engine.Token(d.o.Text[length%len(d.o.Text)])
	case n < len(d.o.Text):
		return engine.Token(d.o.Text[n])
	}
	return End
}

// Embed returns vectors of unit length that are a pseudo-random function of the inputs.
func (d *Device) Embed(ctx context.Context, inputs [][]engine.Token) ([][]float32, error) {
	if !d.o.Embeddings || d.closed {
		return nil, fmt.Errorf("embed: %w", engine.ErrFatal)
	}
	out := make([][]float32, 0, len(inputs))
	for _, in := range inputs {
		if len(in) == 0 || len(in) > d.o.ContextTokens {
			return nil, fmt.Errorf("embed an input of %d tokens: %w", len(in), engine.ErrFatal)
		}
		if !d.pass(ctx, d.o.Step+time.Duration(len(in))*d.o.PerPromptToken) {
			return nil, engine.ErrAborted
		}
		h := uint64(1)
		for _, t := range in {
			h = mix(h ^ uint64(t))
		}
		angle := float64(h>>11) / (1 << 53) * 2 * math.Pi
		out = append(out, []float32{float32(math.Cos(angle)), float32(math.Sin(angle))})
	}
	return out, nil
}

// LoadAdapter makes an adapter usable by steps, or replaces it. One without a path can't be read.
func (d *Device) LoadAdapter(a engine.Adapter) error {
	if a.Path == "" {
		return fmt.Errorf("load adapter %s: it has no file", a.Name)
	}
	d.loads++
	d.adapters[a.Name] = mix(d.loads)
	return nil
}

// UnloadAdapter forgets an adapter.
func (d *Device) UnloadAdapter(name string) error {
	if _, ok := d.adapters[name]; !ok || name == "" {
		return fmt.Errorf("unload adapter %s: it is not loaded", name)
	}
	delete(d.adapters, name)
	return nil
}

// Close makes every later step fail.
func (d *Device) Close() error {
	d.closed = true
	return nil
}

// Vocabulary has a token for each byte.
type Vocabulary struct{}

// Render writes the messages as they stand and the token that asks for an answer.
func (Vocabulary) Render(c engine.Chat) (string, error) {
	return string(c.Messages) + string(c.Tools) + answerMark, nil
}

// answerMark is the text of the token Answer, recognised as a special token is.
const answerMark = "<|answer|>"

// Tokenize returns the bytes of text as tokens.
func (Vocabulary) Tokenize(text string, special bool) ([]engine.Token, error) {
	var out []engine.Token
	for len(text) > 0 {
		if special && len(text) >= len(answerMark) && text[:len(answerMark)] == answerMark {
			out = append(out, Answer)
			text = text[len(answerMark):]
			continue
		}
		out = append(out, engine.Token(text[0]))
		text = text[1:]
	}
	return out, nil
}

// Piece returns the token's byte; special tokens have none.
func (Vocabulary) Piece(t engine.Token) []byte {
	if t < 0 || t > 255 {
		return nil
	}
	return []byte{byte(t)}
}

// EndsGeneration reports whether t is End.
func (Vocabulary) EndsGeneration(t engine.Token) bool { return t == End }
