// Package sim is an engine.Executor and engine.Vocabulary that run no model: a step takes as long as a timing model
// says, on a clock that is handed in, and the logits spell a given text. It holds its caller to the Executor's contract:
// a batch that a real device would choke on is an error. It is for tests and simulations only. No binary can be told to
// use it: no driver has its name.
package sim

import (
	"context"
	"fmt"
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
	// ContextTokens, Sequences and KVTokens are the device's limits.
	ContextTokens, Sequences, KVTokens int
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
	o      Options
	seqs   map[engine.Seq][]engine.Token // what each sequence's cells hold
	logits [][]float32
	closed bool
}

// New returns a device and its vocabulary as a loaded model.
func New(o Options) *engine.Loaded {
	d := &Device{o: o, seqs: map[engine.Seq][]engine.Token{}}
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
		MaxStepTokens: d.o.KVTokens, KVBytesPerToken: 1,
	}
}

// Cells returns how many KV cells are in use. Call it from the goroutine that calls Step, or when none does.
func (d *Device) Cells() int {
	n := 0
	for _, s := range d.seqs {
		n += len(s)
	}
	return n
}

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
	after, err := d.change(b)
	if err != nil {
		return nil, err
	}
	d.seqs = after
	d.o.Clock.Sleep(d.duration(b))
	if ctx.Err() != nil {
		return nil, engine.ErrAborted
	}
	return d.result(b), nil
}

// change returns the sequences as b leaves them.
func (d *Device) change(b *engine.Batch) (map[engine.Seq][]engine.Token, error) {
	seqs := make(map[engine.Seq][]engine.Token, len(d.seqs))
	for k, v := range d.seqs {
		seqs[k] = v
	}
	for _, op := range b.KV {
		switch have := len(seqs[op.Dst]); op.Kind {
		case engine.KVDrop:
			delete(seqs, op.Dst)
		case engine.KVTruncate:
			seqs[op.Dst] = seqs[op.Dst][:min(op.N, have):min(op.N, have)]
		case engine.KVFork:
			if have > 0 || op.N > len(seqs[op.Src]) {
				return nil, fmt.Errorf("fork of %d cells from sequence %d into %d: %w", op.N, op.Src, op.Dst, engine.ErrFatal)
			}
			seqs[op.Dst] = seqs[op.Src][:op.N:op.N]
		}
	}
	total := 0
	for _, item := range b.Items {
		if item.Seq < 0 || int(item.Seq) >= d.o.Sequences || len(item.Tokens) == 0 || item.Pos != len(seqs[item.Seq]) {
			return nil, fmt.Errorf("item of %d tokens at %d of sequence %d, which holds %d: %w",
				len(item.Tokens), item.Pos, item.Seq, len(seqs[item.Seq]), engine.ErrFatal)
		}
		seqs[item.Seq] = append(seqs[item.Seq][:item.Pos:item.Pos], item.Tokens...)
	}
	for _, s := range seqs {
		total += len(s)
	}
	if total > d.o.KVTokens-d.o.HiddenTokens {
		return nil, engine.ErrNoKV
	}
	return seqs, nil
}

func (d *Device) duration(b *engine.Batch) time.Duration {
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

func (d *Device) result(b *engine.Batch) *engine.Result {
	r := &engine.Result{Logits: make([][]float32, len(b.Items))}
	for i, item := range b.Items {
		if !item.Logits {
			continue
		}
		for len(d.logits) <= i {
			d.logits = append(d.logits, make([]float32, vocab))
		}
		clear(d.logits[i])
		d.logits[i][d.spell(d.seqs[item.Seq])] = 10
		r.Logits[i] = d.logits[i]
	}
	return r
}

// spell returns the token that follows: the next byte of the text after the last Answer, then End. A prompt without
// Answer is answered with the byte of the text at its length, and never ends.
func (d *Device) spell(history []engine.Token) engine.Token {
	if d.o.Text == "" {
		return End
	}
	for i := len(history) - 1; i >= 0; i-- {
		if history[i] != Answer {
			continue
		}
		if n := len(history) - 1 - i; n < len(d.o.Text) {
			return engine.Token(d.o.Text[n])
		}
		return End
	}
	return engine.Token(d.o.Text[len(history)%len(d.o.Text)])
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
