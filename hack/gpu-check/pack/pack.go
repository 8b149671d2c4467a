// Package pack puts gpu-check and all that it loads into one folder, and takes it out again on the machine with the GPU.
// It decides which files those are; whether they work there is what package measure finds out.
package pack

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/hack/gpu-check/fatbin"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/repo"
)

// Most is what the folder may take in bytes.
const Most = 64 << 20

// capabilityFile says which compute capability the folder is for.
const capabilityFile = "capability"

// Thinned says why a warning is no reason to worry.
const Thinned = fetch.LibraryCUDA + " holds the kernels for this GPU alone, so a warning below says that it is not the pinned file\n"

// script runs the program with libffi, which it needs before it can look for anything.
const script = `#!/bin/sh
# Checks this machine's GPU; see gpu-check -help.
dir=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$dir/ffi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$dir/gpu-check" "$@"
`

// Write makes the folder. gpu is the compute capability that it is for, times ten: kernels for others stay out.
func Write(ctx context.Context, out io.Writer, dir string, gpu uint) error {
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	cache, err := fetch.New(out)
	if err != nil {
		return err
	}
	libraries, err := fetch.Libraries()
	if err != nil {
		return err
	}
	libs, err := cache.Get(ctx, libraries)
	if err != nil {
		return err
	}
	cuda, err := cache.Get(ctx, fetch.LlamaCUDA())
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "ffi"), 0o755), os.MkdirAll(filepath.Join(dir, "lib"), 0o755)); err != nil {
		return err
	}
	for _, f := range libraries.Files {
		if strings.HasSuffix(f.Name, ".so") {
			if err := squeeze(filepath.Join(libs, f.Name), filepath.Join(dir, "lib", f.Name), nil); err != nil {
				return err
			}
		}
	}
	var kept fatbin.Summary
	if err := squeeze(filepath.Join(cuda, fetch.LibraryCUDA), filepath.Join(dir, "lib", fetch.LibraryCUDA), func(b []byte) (_ []byte, err error) {
		b, kept, err = fatbin.Thin(b, fatbin.Arch(gpu))
		return b, err
	}); err != nil {
		return err
	}
	fmt.Fprintf(out, "of %s %d kernel files are kept for capability %d.%d (%d of machine code, the rest is compiled on the machine), %.1f of %.1f MB\n",
		fetch.LibraryCUDA, kept.Kept, gpu/10, gpu%10, kept.Machine, float64(kept.After)/1e6, float64(kept.Before)/1e6)
	if err := os.WriteFile(filepath.Join(dir, capabilityFile), fmt.Appendf(nil, "%d.%d\n", gpu/10, gpu%10), 0o600); err != nil {
		return err
	}
	if err := program(ctx, root, dir); err != nil {
		return err
	}
	return weigh(out, dir)
}

// squeeze writes the file at from, changed, to to.gz.
func squeeze(from, to string, change func([]byte) ([]byte, error)) error {
	b, err := os.ReadFile(from)
	if err == nil && change != nil {
		b, err = change(b)
	}
	if err != nil {
		return err
	}
	f, err := os.Create(to + ".gz")
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(b)
		err = errors.Join(err, z.Close())
	}
	return errors.Join(err, f.Close())
}

// program builds gpu-check, and puts libffi beside it.
func program(ctx context.Context, root, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "gpu-check"), "./hack/gpu-check")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build gpu-check: %w\n%s", err, text)
	}
	const ffi = "libffi.so.8"
	b, err := os.ReadFile(filepath.Join("/usr/lib/x86_64-linux-gnu", ffi))
	if err != nil {
		return fmt.Errorf("find %s, which calls the library's functions (Debian: apt install libffi8): %w", ffi, err)
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "ffi", ffi), b, 0o755), //nolint:gosec // a library
		os.WriteFile(filepath.Join(dir, "run"), []byte(script), 0o755)) //nolint:gosec // a program
}

// weigh says what the folder holds, and fails where that is too much.
func weigh(out io.Writer, dir string) error {
	var all int64
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all += info.Size()
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has %.1f MiB; on the machine with the GPU: %s/run\n", dir, float64(all)/(1<<20), dir)
	if all > Most {
		return fmt.Errorf("%s has %d bytes, at most %d can be carried", dir, all, Most)
	}
	return nil
}
