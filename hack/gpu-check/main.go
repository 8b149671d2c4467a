// Command gpu-check shows on a machine with an NVIDIA GPU what a machine without one can't: that the llama.cpp driver loads
// and computes there, how long the first load takes, and what steps cost. Made ready with
//
//	go run ./hack/gpu-check pack
//
// it is a folder of less than 64 MiB, bin/gpu-check, that needs no network: copy it to the machine and run
//
//	bin/gpu-check/run
//
// It takes less than four minutes and ends with 0, with 1 where something is wrong, or with 3 where there is no GPU to
// check: then it says what it looked for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/gpu-check/measure"
	"github.com/ringfleet/ringfleet/hack/gpu-check/pack"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
)

const failed, noGPU = 1, 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil:
	case errors.Is(err, llamacpp.ErrNoGPU):
		fmt.Fprintln(os.Stderr, "gpu-check: nothing to check:", err)
		os.Exit(noGPU)
	default:
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		os.Exit(failed)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "pack" {
		f := flag.NewFlagSet("pack", flag.ExitOnError)
		out := f.String("o", filepath.Join("bin", "gpu-check"), "folder to write")
		gpu := f.Uint("gpu", 90, "compute capability of the GPU, times ten: 75 for T4, 80 for A100, 90 for H100 and H200")
		_ = f.Parse(args[1:]) // ends the process itself
		return pack.Write(ctx, os.Stdout, *out, *gpu)
	}
	f := flag.NewFlagSet("gpu-check", flag.ExitOnError)
	o := measure.Options{Out: os.Stdout}
	packed := f.String("pack", besideProgram(), "folder that gpu-check pack has written")
	f.StringVar(&o.JSON, "json", "", "file to write the figures to, besides")
	f.BoolVar(&o.CPU, "cpu", false, "measure the CPU instead, with a small model: to try this program")
	f.BoolVar(&o.FirstLoad, "first-load", false, "only load the library and a small model, and print the milliseconds")
	f.DurationVar(&o.Limit, "limit", 200*time.Second, "time after which no further part is begun")
	cuda := f.String("cuda", "", "folder with libcudart.so.13, libcublas.so.13 and libcublasLt.so.13 (default: the usual places)")
	_ = f.Parse(args) // ends the process itself
	if !o.CPU {
		if err := pack.Fits(ctx, *packed); err != nil {
			return err
		}
		fmt.Fprint(o.Out, pack.LoadCUDA(*cuda), pack.Thinned)
	}
	dir, remove, err := pack.Unpack(*packed)
	if err != nil {
		return err
	}
	defer remove()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o.Dir, o.Again = dir, slices.Concat([]string{program, "-first-load"}, args)
	return measure.Run(ctx, o)
}

// besideProgram is the folder of this program, which is where pack puts it.
func besideProgram() string {
	program, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(program)
}
