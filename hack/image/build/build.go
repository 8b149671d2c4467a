// Package build turns this repository's source into image archives: it compiles, fetches and finds what
// package recipe asks for, says how far it is, and hands the result to package oci.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/ringfleet/ringfleet/hack/image/apt"
	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/oci"
	"github.com/ringfleet/ringfleet/hack/image/recipe"
)

// Model is the target of the demo model's image, and WorkerCUDA that of the worker's image for NVIDIA's GPUs; the other
// targets are the programs' names.
const (
	Model      = "smollm2"
	WorkerCUDA = recipe.WorkerCUDA
)

// OnDemand returns what is built only where it is named: what is too large to be made beside the rest.
func OnDemand() []string { return []string{WorkerCUDA} }

// Targets returns what is built where nothing is named, in the order of building.
func Targets() []string {
	var t []string
	for _, p := range recipe.Programs() {
		t = append(t, p.Name)
	}
	return append(t, Model)
}

// Builder builds images.
type Builder struct {
	Root    string // of the repository
	Version string
	Dir     string // of the archives
	Cache   *fetch.Cache
	Out     io.Writer // progress, for people
}

// Result is one archive.
type Result struct {
	Name   string // of the image
	File   string
	Digest v1.Hash
}

// Build builds the image of target into the folder of archives.
func (b *Builder) Build(ctx context.Context, target string) (Result, error) {
	start := time.Now()
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return Result{}, fmt.Errorf("make the folder of archives: %w", err)
	}
	image, err := b.image(ctx, target)
	if err != nil {
		return Result{}, fmt.Errorf("image of %s: %w", target, err)
	}
	built, err := oci.Build(image, runtime.GOARCH)
	if err != nil {
		return Result{}, fmt.Errorf("image of %s: %w", target, err)
	}
	r := Result{Name: image.Name, File: filepath.Join(b.Dir, target+".tar")}
	if r.Digest, err = oci.Write(r.File, image.Name, built); err != nil {
		return Result{}, err
	}
	st, err := os.Stat(r.File)
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintf(b.Out, "%s: %s, %.1f MB, %s, %.0f s\n", target, r.Name, float64(st.Size())/1e6, r.Digest, time.Since(start).Seconds())
	return r, nil
}

func (b *Builder) image(ctx context.Context, target string) (oci.Image, error) {
	if target == Model {
		p := fetch.Weights()
		dir, err := b.Cache.Get(ctx, p)
		return recipe.Model(dir, p), err
	}
	programs, name := recipe.Programs(), target
	if target == WorkerCUDA {
		name = recipe.WorkerProgram
	}
	i := slices.IndexFunc(programs, func(p recipe.Program) bool { return p.Name == name })
	if i < 0 {
		return oci.Image{}, fmt.Errorf("no such target; choose from %v", slices.Concat(Targets(), OnDemand()))
	}
	binary, err := b.compile(ctx, programs[i])
	if err != nil {
		return oci.Image{}, err
	}
	switch {
	case target == WorkerCUDA:
		return b.workerCUDA(ctx, binary)
	case programs[i].CGO:
		return b.worker(ctx, binary)
	}
	return recipe.Static(target, b.Version, binary, certificates()), nil
}

func (b *Builder) worker(ctx context.Context, binary string) (oci.Image, error) {
	libraries, err := fetch.Libraries()
	if err != nil {
		return oci.Image{}, err
	}
	fetched, err := b.fetch(ctx, libraries)
	if err != nil {
		return oci.Image{}, err
	}
	c, err := b.closure(ctx, binary, fetched, nil)
	if err != nil {
		return oci.Image{}, err
	}
	return recipe.Worker(b.Version, binary, certificates(), fetched[0], c)
}

// workerCUDA leaves out what comes with the node's driver, and nothing else.
func (b *Builder) workerCUDA(ctx context.Context, binary string) (oci.Image, error) {
	libraries, err := fetch.Libraries()
	if err != nil {
		return oci.Image{}, err
	}
	fetched, err := b.fetch(ctx, append([]fetch.Package{libraries, fetch.LlamaCUDA()}, fetch.CUDA()...)...)
	if err != nil {
		return oci.Image{}, err
	}
	c, err := b.closure(ctx, binary, fetched, []string{recipe.Driver})
	if err != nil {
		return oci.Image{}, err
	}
	fmt.Fprintf(b.Out, "%s: left to the driver of the node: %s\n", WorkerCUDA, strings.Join(c.Outside, " "))
	return recipe.CUDA(b.Version, binary, certificates(), fetched[0], fetched[1], fetched[2:], c)
}

func (b *Builder) fetch(ctx context.Context, packages ...fetch.Package) ([]recipe.Fetched, error) {
	out := make([]recipe.Fetched, 0, len(packages))
	for _, p := range packages {
		dir, err := b.Cache.Get(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, recipe.Fetched{Package: p, Dir: dir})
	}
	return out, nil
}

// closure finds the shared libraries of binary and of what was fetched, but for those that come from outside, and installs
// those that Debian has and this machine lacks.
func (b *Builder) closure(ctx context.Context, binary string, fetched []recipe.Fetched, outside []string) (elfdeps.Closure, error) {
	files := []string{binary}
	for _, p := range fetched {
		for _, f := range p.Package.Files {
			if f.Shared() {
				files = append(files, filepath.Join(p.Dir, f.Name))
			}
		}
	}
	packages := map[string]string{recipe.FFI: "libffi8", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1"}
	for {
		cache, err := elfdeps.Ldconfig(ctx)
		if err != nil {
			return elfdeps.Closure{}, err
		}
		c, err := elfdeps.Resolver{Cache: cache, Read: elfdeps.ReadFile, Outside: outside}.Closure(files, []string{recipe.FFI})
		var lacks *elfdeps.MissingError
		if !errors.As(err, &lacks) || packages[lacks.Name] == "" {
			return c, err
		}
		debian := packages[lacks.Name]
		delete(packages, lacks.Name) // one try each
		if err := apt.Install(ctx, b.Out, "the worker's image needs "+lacks.Name, debian); err != nil {
			return c, err
		}
	}
}

// certificates returns this machine's file of certificate authorities, "" if it has none.
func certificates() string {
	for _, f := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() {
			return f
		}
	}
	return ""
}
