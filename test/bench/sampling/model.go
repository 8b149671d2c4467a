package main

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/grammar"
)

// text is what the model has read at the positions whose logits are used.
const text = `The lighthouse keeper wrote a letter every evening. "Dear sister," it began, "the sea was calm today, and three
ships passed before noon." Then he listed them: {"name": "Aurora", "flag": "Norway", "tons": 1200}. In winter the`

// model is the demo model after it has read the text.
type model struct {
	handle  llama.Model
	context llama.Context
	vocab   llama.Vocab
	size    int
	words   *grammar.Vocabulary
	rows    [][]float32 // the logits after each token of the text, in the library's memory
	wide    [][]float32 // the same for a large vocabulary
}

func open(libs, weights string) (*model, error) {
	if err := llama.Load(libs); err != nil {
		return nil, fmt.Errorf("load llama.cpp from %s: %w", libs, err)
	}
	llama.LogSet(purego.NewCallback(func(level int32, text, user uintptr) uintptr { return 0 })) // its lines are of no use here
	llama.Init()
	params := llama.ModelDefaultParams()
	params.LoadMode = llama.LoadModeMmap
	handle, err := llama.ModelLoadFromFile(weights, params)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", weights, err)
	}
	m := &model{handle: handle, vocab: llama.ModelGetVocab(handle)}
	m.size = int(llama.VocabNTokens(m.vocab))
	if err := m.read(llama.Tokenize(m.vocab, text, true, false)); err != nil {
		return nil, errors.Join(err, llama.ModelFree(handle))
	}
	m.words, m.wide = grammar.New(m.size, m.piece, m.ends), widen(m.rows)
	return m, nil
}

// read runs tokens through the model and keeps the logits after each.
func (m *model) read(tokens []llama.Token) (err error) {
	params := llama.ContextDefaultParams()
	params.NCtx, params.NBatch, params.NOutputsMax = 512, 512, 512
	params.NThreads, params.NThreadsBatch = 1, 1
	if m.context, err = llama.InitFromModel(m.handle, params); err != nil {
		return fmt.Errorf("make a context: %w", err)
	}
	batch := llama.BatchInit(int32(len(tokens)), 0, 1)
	defer func() { err = errors.Join(err, llama.BatchFree(batch)) }()
	for i, t := range tokens {
		if err := batch.Add(t, llama.Pos(i), []llama.SeqId{0}, true); err != nil {
			return err
		}
	}
	switch code, err := llama.Decode(m.context, batch); {
	case err != nil:
		return fmt.Errorf("read %d tokens: %w", len(tokens), err)
	case code != 0:
		return fmt.Errorf("read %d tokens: llama.cpp returned %d", len(tokens), code)
	}
	for i := range tokens {
		row, err := llama.GetLogitsIth(m.context, int32(i), m.size)
		if err != nil || row == nil {
			return fmt.Errorf("read the logits after token %d: %w", i, err)
		}
		m.rows = append(m.rows, row)
	}
	return nil
}

func (m *model) close() {
	_ = llama.Free(m.context)
	_ = llama.ModelFree(m.handle)
}

// piece returns the bytes of a token, none for a special one.
func (m *model) piece(t engine.Token) []byte {
	buf := make([]byte, 256)
	n := llama.TokenToPiece(m.vocab, llama.Token(t), buf, 0, false)
	return buf[:max(n, 0)]
}

func (m *model) ends(t engine.Token) bool { return llama.VocabIsEOG(m.vocab, llama.Token(t)) }

// cpu returns the CPU time of this thread in nanoseconds.
func cpu() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // this clock always is there
	return t.Nano()
}
