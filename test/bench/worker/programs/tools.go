package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/hack/image/apt"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/progress"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// release is the one of node-llama-cpp's packages that fetch.Libraries takes, too.
const release = "3.22.1"

const bundle = "source.bundle"

// source is llama.cpp's own tree at fetch.LlamaVersion, as a git bundle.
func source() fetch.Package {
	return fetch.Package{
		Key: "llama.cpp-source-" + fetch.LlamaVersion + "-" + release, Title: "the source of llama.cpp " + fetch.LlamaVersion,
		Client: fetch.NPM, Spec: "node-llama-cpp@" + release, Bytes: 35735663,
		Archive: "sha512:6e5b488a9b9699cd76dc7eed30880318a4ac4ab866865418795502e3c5d38d55" +
			"bb5c624988927209d95333343f2e25a83e4183a5c2f816f883a60c3ba9f4e20f",
		Files: []fetch.File{{From: "package/llama/gitRelease.bundle", Name: bundle,
			SHA256: "5f5d1105d5df040738d87b8290e5d17e7362131cdcfdb0831618e0ea528b4a51"}},
	}
}

// common is the library of what llama.cpp's programs share, built with fetch.Libraries.
func common(libraries fetch.Package) fetch.Package {
	return fetch.Package{
		Key: "libllama-common-" + fetch.LlamaVersion + "-" + release, Title: "libllama-common " + fetch.LlamaVersion,
		Client: libraries.Client, Spec: libraries.Spec, Bytes: libraries.Bytes, Archive: libraries.Archive,
		Files: []fetch.File{{From: "package/bins/linux-x64/libllama-common.so", Name: "libllama-common.so",
			SHA256: "8cb10e69b3de60d4ce6047ca13fe1e68c28caad87382701ee7fbde28d19952bd"}},
	}
}

// tool is a program of llama.cpp and the files that it is compiled from. The rest of it is in the libraries.
type tool struct {
	name    string
	sources []string // patterns
	// unused are compiled without optimising, which is quicker: they handle pictures and sound.
	unused []string
}

var tools = []tool{
	{name: "llama-batched-bench", sources: []string{"tools/batched-bench/*.cpp"}},
	{name: "llama-server", sources: []string{"tools/server/*.cpp", "vendor/cpp-httplib/httplib.cpp", "ui/ui.cpp"},
		unused: []string{"tools/mtmd/mtmd.cpp", "tools/mtmd/mtmd-[ahi]*.cpp", "tools/mtmd/clip.cpp", "tools/mtmd/models/*.cpp",
			"vendor/hash/hash.cpp", "vendor/hash/sha256/sha256.c"}},
}

// flags are those that llama.cpp's own build sets for these files.
var flags = []string{
	"-w", "-I.", "-Iui", "-Icommon", "-Iinclude", "-Iggml/include", "-Ivendor", "-Ivendor/cpp-httplib", "-Ivendor/hash", "-Itools/mtmd",
	"-DCPPHTTPLIB_FORM_URL_ENCODED_PAYLOAD_MAX_LENGTH=1048576", "-DCPPHTTPLIB_LISTEN_BACKLOG=512",
	"-DCPPHTTPLIB_REQUEST_URI_MAX_LENGTH=32768", "-DCPPHTTPLIB_TCP_NODELAY=1",
}

// compiled returns the folder of the tools, linked with the library of the worker itself, and that of libllama-common.
func compiled(ctx context.Context, cache *fetch.Cache, libraries string) (dir, shared string, err error) {
	l, err := fetch.Libraries()
	if err != nil {
		return "", "", err
	}
	if shared, err = cache.Get(ctx, common(l)); err != nil {
		return "", "", err
	}
	dir = filepath.Join(cache.Root, "llama.cpp-tools-"+fetch.LlamaVersion+"-"+release)
	if _, err := os.Stat(dir); err == nil {
		return dir, shared, nil
	}
	from, err := cache.Get(ctx, source())
	if err != nil {
		return "", "", err
	}
	for program, debian := range map[string]string{"g++": "g++", "git": "git"} {
		if _, err := exec.LookPath(program); err != nil {
			if err := apt.Install(ctx, cache.Out, "llama.cpp's tools are compiled", debian); err != nil {
				return "", "", err
			}
		}
	}
	fmt.Fprintf(cache.Out, "compiling llama-batched-bench and llama-server of llama.cpp %s: some minutes, once\n", fetch.LlamaVersion)
	stop := progress.Tell(func(passed time.Duration) {
		fmt.Fprintf(cache.Out, "  still compiling, %.0f s so far\n", passed.Seconds())
	})
	err = compile(ctx, filepath.Join(from, bundle), libraries, shared, dir)
	stop()
	if err != nil {
		return "", "", fmt.Errorf("compile llama.cpp's tools: %w", err)
	}
	return dir, shared, nil
}

// compile puts the tools in their place when all are whole.
func compile(ctx context.Context, bundle, libraries, shared, dir string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".llama.cpp-tools-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	tree, out := filepath.Join(tmp, "tree"), filepath.Join(tmp, "out")
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-checkout", bundle, tree},
		{"-C", tree, "checkout", "--quiet", "HEAD", "--", "common", "include", "ggml/include", "src", "vendor", "tools"},
	} {
		if _, err := process.Run(ctx, process.Spec{Path: "git", Args: args}); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(out, 0o755), page(tree)); err != nil {
		return err
	}
	for _, t := range tools {
		if err := t.compile(ctx, tree, libraries, shared, filepath.Join(out, t.name)); err != nil {
			return err
		}
	}
	return os.Rename(out, dir)
}

// page fills in the templates of the server's web page for a server without one.
func page(tree string) error {
	if err := os.Mkdir(filepath.Join(tree, "ui"), 0o755); err != nil {
		return err
	}
	fill := strings.NewReplacer("@N_ASSETS@", "0", "@USE_GZIP@", "false", "@ASSET_ARRAYS@", "", "@ASSET_TABLE@", "", "#cmakedefine", "// undefined:")
	for _, name := range []string{"ui.h", "ui.cpp"} {
		text, err := os.ReadFile(filepath.Join(tree, "tools", "ui", name+".in"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tree, "ui", name), []byte(fill.Replace(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (t tool) compile(ctx context.Context, tree, libraries, shared, out string) error {
	group, compiling := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	var objects []string
	for level, patterns := range map[string][]string{"-O2": t.sources, "-O0": t.unused} {
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(tree, pattern))
			if err != nil || len(files) == 0 {
				return fmt.Errorf("%s: no file is %s: %w", t.name, pattern, errors.Join(err, group.Wait()))
			}
			for _, file := range files {
				objects = append(objects, file+".o")
				language := "-std=c++17"
				if strings.HasSuffix(file, ".c") {
					language = "-xc"
				}
				group.Go(func() error {
					return gcc(compiling, tree, append([]string{level, language, "-c", file, "-o", file + ".o"}, flags...)...)
				})
			}
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	link := append([]string{"-o", out}, objects...)
	return gcc(ctx, tree, append(link, filepath.Join(shared, "libllama-common.so"), filepath.Join(libraries, "libllama."+fetch.LlamaVersion+".so"),
		filepath.Join(libraries, "libggml."+fetch.LlamaVersion+".so"), filepath.Join(libraries, "libggml-base.so"), "-pthread")...)
}

// gcc runs the compiler, and leaves the machine to others who want it.
func gcc(ctx context.Context, dir string, args ...string) error {
	_, err := process.Run(ctx, process.Spec{Path: "nice", Args: append([]string{"-n", "15", "g++"}, args...), Dir: dir})
	return err
}
