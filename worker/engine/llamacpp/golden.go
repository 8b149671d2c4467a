package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// golden is a conversation with a generated model whose outcome is known: a prompt, its fork, a token to each of both step
// after step, and what is said anew after the first has been cut back. want is what the model finds most likely after each.
// The tokens are chosen so that this is far ahead of the second best, by 0.8 standard deviations of the logits or more: no
// way of rounding changes it.
var golden = conversation{
	prompt: []engine.Token{491, 319, 450, 200, 377, 255, 379, 165, 222, 214, 489, 309, 260, 224, 349, 486},
	steps:  [][2]engine.Token{{477, 295}, {341, 92}, {91, 363}, {373, 259}, {503, 207}},
	cut:    9,
	tail:   []engine.Token{65, 495, 431, 51, 65, 289, 491, 202, 205, 54, 261, 325},
	want:   []engine.Token{280, 261, 427, 185, 30, 246, 326, 127, 128, 399, 217, 382},
}

type conversation struct {
	prompt []engine.Token
	steps  [][2]engine.Token
	cut    int // cells that are left of the prompt before the tail
	tail   []engine.Token
	want   []engine.Token
}

// check has the library compute what is known, once in a process. Wrong numbers are its failure, whatever the cause: a
// library built for another CPU, structs that don't fit it, a broken GPU.
func (l *library) check(o *Options) error {
	if l.checked {
		return nil
	}
	got, err := l.converse(o, &golden)
	if err != nil {
		return fmt.Errorf("check llama.cpp from %s: %w", l.dir, err)
	}
	if !slices.Equal(got, golden.want) {
		return fmt.Errorf("check llama.cpp from %s: a generated model that is to make the tokens %v makes %v: the library computes "+
			"wrongly on this machine; loaded are %s", l.dir, golden.want, got, l.files())
	}
	l.checked = true
	return nil
}

// files are the names of the library's loaded files.
func (l *library) files() string {
	paths, err := mapped(l.dir)
	if err != nil || len(paths) == 0 {
		return "unknown files"
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return strings.Join(paths, ", ")
}

// converse loads the golden model, on GPUs where o says so, and returns the most likely tokens after each part of c.
func (l *library) converse(o *Options, c *conversation) (out []engine.Token, err error) {
	file, head, err := goldenModel()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	x, _, err := l.open(&Options{WeightsPath: fmt.Sprintf("/proc/self/fd/%d", file.Fd()), ContextTokens: minContext, MaxSequences: 2,
		KVType: F16, Threads: 1, Logger: o.Logger, GPU: o.GPU, FlashAttention: o.FlashAttention}, head)
	if err != nil {
		return nil, err
	}
	x.onClose = func() {}
	defer func() { err = errors.Join(err, x.Close()) }()
	for _, b := range c.batches() {
		r, err := x.Step(context.Background(), &b)
		if err != nil {
			return nil, err
		}
		for _, row := range r.Logits {
			out = append(out, best(row))
		}
	}
	return out, nil
}

// batches are the steps of the conversation.
func (c *conversation) batches() []engine.Batch {
	n := len(c.prompt)
	all := []engine.Batch{{Items: []engine.Item{{Tokens: c.prompt, Logits: true}}}}
	for i, next := range c.steps {
		all = append(all, engine.Batch{Items: []engine.Item{{Seq: 0, Pos: n + i, Tokens: next[:1], Logits: true},
			{Seq: 1, Pos: n + i, Tokens: next[1:], Logits: true}}})
	}
	all[1].KV = []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: n}}
	return append(all, engine.Batch{KV: []engine.KVOp{{Kind: engine.KVTruncate, Dst: 0, N: c.cut}},
		Items: []engine.Item{{Pos: c.cut, Tokens: c.tail, Logits: true}}})
}

// goldenModel writes the model to a file in memory: the pod's root may be read-only.
func goldenModel() (*os.File, *modelfile.GGUF, error) {
	fd, err := unix.MemfdCreate("golden.gguf", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "golden.gguf")
	m := ggufgen.Golden()
	size, err := m.WriteTo(file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	head, err := modelfile.ReadGGUF(file, size)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, head, nil
}

// best is the token of the greatest logit.
func best(logits []float32) engine.Token {
	at := 0
	for i, x := range logits {
		if x > logits[at] {
			at = i
		}
	}
	return engine.Token(at)
}
