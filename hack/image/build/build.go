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
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/ringfleet/ringfleet/hack/image/apt"
	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/oci"
	"github.com/ringfleet/ringfleet/hack/image/recipe"
)

// Model is the target of the demo model's image; the other targets are the programs' names.
const Model = "smollm2"

// Targets returns all that can be built, in the order of building.
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
	programs := recipe.Programs()
	i := slices.IndexFunc(programs, func(p recipe.Program) bool { return p.Name == target })
	if i < 0 {
		return oci.Image{}, fmt.Errorf("no such target; choose from %v", Targets())
	}
	binary, err := b.compile(ctx, programs[i])
	if err != nil {
		return oci.Image{}, err
	}
	if !programs[i].CGO {
		return recipe.Static(target, b.Version, binary, certificates()), nil
	}
	return b.worker(ctx, binary)
}

func (b *Builder) worker(ctx context.Context, binary string) (oci.Image, error) {
	p, err := fetch.Libraries()
	if err != nil {
		return oci.Image{}, err
	}
	llama, err := b.Cache.Get(ctx, p)
	if err != nil {
		return oci.Image{}, err
	}
	files := []string{binary}
	for _, f := range p.Files {
		if filepath.Ext(f.Name) == ".so" {
			files = append(files, filepath.Join(llama, f.Name))
		}
	}
	c, err := b.closure(ctx, files)
	if err != nil {
		return oci.Image{}, err
	}
	return recipe.Worker(b.Version, binary, certificates(), llama, p, c)
}

// closure finds the shared libraries, and installs those that Debian has and this machine lacks.
func (b *Builder) closure(ctx context.Context, files []string) (elfdeps.Closure, error) {
	packages := map[string]string{recipe.FFI: "libffi8", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1"}
	for {
		cache, err := elfdeps.Ldconfig(ctx)
		if err != nil {
			return elfdeps.Closure{}, err
		}
		c, err := elfdeps.Resolver{Cache: cache, Read: elfdeps.ReadFile}.Closure(files, []string{recipe.FFI})
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
