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
	"github.com/ringfleet/ringfleet/worker/scheduler"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// recheck is how often a worker without usable weights looks whether they have changed.
const recheck = 10 * time.Second

// load finds, checks and loads the weights. Weights that can't be used leave the worker up, with the reason in its
// status, and are tried again once the files have changed; any other error ends it. It returns nil when the model is
// loaded or ctx has ended.
func (a *agent) load(ctx context.Context) error {
	ticker := a.clock.NewTicker(recheck)
	defer ticker.Stop()
	for {
		seen := fingerprint(a.o.WeightsDir, a.o.WeightsFile)
		err := a.try(ctx)
		bad := (*engine.LoadError)(nil)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case !errors.As(err, &bad):
			a.state.failed("EngineFailed", err.Error())
			return fmt.Errorf("agent: load the model: %w", err)
		}
		a.state.failed(bad.Reason, bad.Message)
		a.log.Info("The weights can't be used; they are tried again when they change", "reason", bad.Reason, "message", bad.Message)
		for fingerprint(a.o.WeightsDir, a.o.WeightsFile) == seen {
			select {
			case <-ticker.C():
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// try loads the model once.
func (a *agent) try(ctx context.Context) error {
	begun := a.clock.Now()
	path, err := weights.Find(a.o.WeightsDir, a.o.WeightsFile)
	if err != nil {
		return err
	}
	const checking, loading = "checking the weights", "loading the weights"
	half := 0 // reading the file twice is two halves
	if a.o.WeightsDigest != "" {
		half = 50
	}
	a.state.loading(checking, 0)
	header, err := weights.Check(ctx, path, a.o.WeightsDigest, func(percent int) { a.state.loading(checking, percent*half/100) })
	if err != nil {
		return err
	}
	a.state.loading(loading, half)
	loaded, err := a.open(path, func(percent int) { a.state.loading(loading, half+percent*(100-half)/100) })
	if err != nil {
		return err
	}
	e, err := scheduler.New(loaded, scheduler.Options{
		MaxSequences: a.o.MaxSequences, MaxWaiting: a.o.MaxWaiting, StepTokens: scheduler.StepTokensCPU,
		Clock: a.clock, Log: a.log, Broken: a.engineLost,
	})
	if err != nil {
		return errors.Join(err, loaded.Executor.Close())
	}
	if !a.keep(e) {
		return e.Close()
	}
	a.state.loaded(e)
	a.log.Info("The model is loaded", "file", path, "architecture", header.Architecture, "device", loaded.Info.Caps.Device,
		"contextTokens", loaded.Info.ContextTokens, "kvTokens", loaded.Info.Caps.KVTokens, "milliseconds", a.clock.Since(begun).Milliseconds())
	return nil
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
