package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
	"github.com/ringfleet/ringfleet/worker/scheduler"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// recheck is how often a worker without usable weights looks whether they have changed.
const recheck = 10 * time.Second

// load finds or fetches, checks and loads the weights. Weights that can't be used leave the worker up, with the reason in
// its status, and are tried again once the files have changed or their source may give them; any other error ends it. It
// returns nil when the model is loaded or ctx has ended, and errFetched when there is no more to do.
func (a *agent) load(ctx context.Context) error {
	pause := firstPause
	for {
		seen := a.fingerprint()
		err := a.try(ctx)
		bad := (*engine.LoadError)(nil)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the process ends, whatever the load says
		case err == nil:
			return nil
		case errors.Is(err, errFetched):
			return err
		case !errors.As(err, &bad):
			a.state.failed("EngineFailed", err.Error())
			return fmt.Errorf("agent: load the model: %w", err)
		}
		a.state.failed(bad.Reason, bad.Message)
		a.log.Info("The weights can't be used; they are tried again", "reason", bad.Reason, "message", bad.Message)
		if !a.await(ctx, seen, pause) {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

// try gets the weights and loads the model once.
func (a *agent) try(ctx context.Context) error {
	begun := a.clock.Now()
	if a.o.Driver == openAI && !a.o.FetchOnly {
		return a.beside(ctx) // its weights are its container's
	}
	path, digest, err := a.weights(ctx)
	if err != nil {
		return err
	}
	list, err := a.adapters(ctx, a.root(path))
	if err != nil {
		return err
	}
	if a.o.FetchOnly {
		return errFetched
	}
	const checking, loading = "checking the weights", "loading the weights"
	half := 0 // reading the file twice is two halves
	if digest != "" {
		half = 50
	}
	at := func(message string, percent int) { a.state.loading(message, &percent) }
	at(checking, 0)
	header, err := weights.Check(ctx, path, digest, func(percent int) { at(checking, percent*half/100) })
	if err != nil {
		return err
	}
	if err := a.fit(header); err != nil {
		return err
	}
	at(loading, half)
	loaded, err := a.open(path, func(percent int) { at(loading, half+percent*(100-half)/100) })
	if err != nil {
		return err
	}
	e, err := scheduler.New(loaded, a.schedule(loaded))
	if err != nil {
		return errors.Join(err, loaded.Executor.Close())
	}
	if err := a.preload(ctx, e, list); err != nil {
		return errors.Join(err, e.Close())
	}
	if !a.keep(e) {
		return e.Close()
	}
	a.state.loaded(e)
	a.log.Info("The model is loaded", "file", path, "architecture", header.Architecture, "device", loaded.Info.Caps.Device,
		"contextTokens", loaded.Info.ContextTokens, "kvTokens", loaded.Info.Caps.KVTokens, "milliseconds", a.clock.Since(begun).Milliseconds())
	return nil
}

// schedule are the scheduler's options for a loaded model.
func (a *agent) schedule(m *engine.Loaded) scheduler.Options {
	tokens := a.o.Steps.Tokens
	switch {
	case tokens > 0:
	case a.o.GPU.Layers != 0:
		tokens = scheduler.StepTokensGPU
	default:
		tokens = scheduler.StepTokensCPU
	}
	idle := a.o.Steps.IdleSequences
	if idle == 0 {
		idle = -1 // the scheduler's word for none
	}
	words := grammar.New(m.Info.Vocab, m.Vocabulary.Piece, m.Vocabulary.EndsGeneration)
	return scheduler.Options{
		MaxSequences: a.o.MaxSequences, MaxWaiting: a.o.MaxWaiting, StepTokens: tokens, Gather: a.o.Steps.Gather, MaxIdle: idle,
		JSONObject: func() sampling.Constraint { return words.JSONObject() },
		Clock:      a.clock, Log: a.log, Observer: a.set.Steps(), Progress: &a.progress, Broken: a.engineLost,
	}
}

// sequences is how many the library must tell apart: those that run and those that are kept.
func (o *Options) sequences() int {
	return min(o.MaxSequences+o.Steps.IdleSequences, maxSequenceIDs)
}

// fingerprint changes when the weights may have: names, sizes and times of the files in dir, and of the one that is
// wanted. It reads no file.
func fingerprint(dir, file string) string {
	var b strings.Builder
	add := func(path string) {
		if info, err := os.Stat(path); err != nil {
			fmt.Fprintf(&b, "%s: %v\n", path, err)
		} else {
			fmt.Fprintf(&b, "%s: %d bytes, %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, e := range entries {
		add(filepath.Join(dir, e.Name()))
	}
	if file != "" {
		add(filepath.Join(dir, file))
	}
	return b.String()
}
