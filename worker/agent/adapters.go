package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// AdapterOptions say which LoRA adapters the model is served with, and where they are.
type AdapterOptions struct {
	// Sources is a JSON list of adapterSource.
	Sources string
	// Link is a folder in which a link, by the adapter's place in the list, leads to each adapter that is fetched: the engine's
	// own container finds them there. Empty: none is made.
	Link string
}

// adapterSource says where an adapter is. Without a URI, File is a path below the weights' folder; with one, it names the
// file of the source, where there are several.
type adapterSource struct {
	Name   string `json:"name"`
	URI    string `json:"uri"`
	File   string `json:"file"`
	Digest string `json:"digest"`
}

// maxAdapters is the most adapters that an engine is given: llama.cpp's driver has no more.
const maxAdapters = 64

func (a *AdapterOptions) bind(b *binder) {
	b.text(&a.Sources, "adapter-sources", "", `LoRA adapters: a JSON list of {"name":…,"uri":…,"file":…,"digest":…}; without a uri, file is below the weights' folder`)
	b.text(&a.Link, "adapters-link", "", "folder of links to the adapters that are fetched, by their place in --adapter-sources (0, 1, …)")
}

// list reads Sources. The error names the place in the list.
func (a *AdapterOptions) list() ([]adapterSource, error) {
	if strings.TrimSpace(a.Sources) == "" {
		return nil, nil
	}
	var list []adapterSource
	d := json.NewDecoder(strings.NewReader(a.Sources))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("want a JSON list of adapters; entry %d: %w", len(list), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want a JSON list of adapters, and nothing behind it")
	}
	if len(list) > maxAdapters {
		return nil, fmt.Errorf("%d adapters, want at most %d", len(list), maxAdapters)
	}
	var errs []error
	first := map[string]int{}
	for i, x := range list {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("entry %d (%q): %s", i, x.Name, fmt.Sprintf(format, args...)))
		}
		if x.Name == "" {
			bad("it has no name")
		}
		if at, twice := first[x.Name]; twice {
			bad("entry %d has the same name", at)
		} else {
			first[x.Name] = i
		}
		x.check(bad)
	}
	return list, errors.Join(errs...)
}

// check says what of x can't be. It says nothing of a query: what signs a URI is there.
func (x *adapterSource) check(bad func(format string, args ...any)) {
	if x.URI == "" && x.File == "" {
		bad("it has neither a uri nor a file")
	}
	if x.File != "" && !filepath.IsLocal(x.File) {
		bad("file %q: want a path below a folder", x.File)
	}
	if x.Digest != "" && !isDigest(x.Digest) {
		bad("digest %q: want sha256: and 64 hexadecimal digits", x.Digest)
	}
	if x.URI == "" {
		return
	}
	switch u, err := source.Parse(x.URI); {
	case err != nil:
		bad("%v", err)
	case u.Scheme == source.PVC || u.Scheme == source.Local:
		bare, _, _ := strings.Cut(x.URI, "?")
		bad("uri %s: want one to fetch from; a file of the weights' volume has no uri", bare)
	}
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// validate checks a against the rest of the options.
func (a *AdapterOptions) validate(o *Options, bad func(flag string, value any, want string)) error {
	list, err := a.list()
	if err != nil {
		return fmt.Errorf("--adapter-sources: %w", err)
	}
	byHand, _ := adapters(o.Steps.Adapters) // validated on its own
	for _, x := range byHand {
		for i := range list {
			if list[i].Name == x.Name {
				err = errors.Join(err, fmt.Errorf("--adapter-sources: entry %d (%q): --adapters has the same name", i, x.Name))
			}
		}
	}
	if a.Link == "" && fetches(list) && (o.FetchOnly || o.Driver == openAI) {
		bad("adapters-link", `""`, "a folder, where the engine's container finds what is fetched")
	}
	if len(list) > 0 && o.Driver == openAI && !o.FetchOnly && !o.Server.Adapters {
		bad("adapter-sources", fmt.Sprintf("of %d adapters", len(list)), "--engine-adapters beside it: else the server loads none")
	}
	return err
}

// fetches reports whether any of list has a source of its own.
func fetches(list []adapterSource) bool {
	for _, x := range list {
		if x.URI != "" {
			return true
		}
	}
	return false
}

// link is the path at which the adapter at place i of the list is found by the engine's container.
func (a *AdapterOptions) link(i int) string {
	if a.Link == "" {
		return ""
	}
	return filepath.Join(a.Link, strconv.Itoa(i))
}

// adapters returns the model's adapters for the engine in this process, or makes them ready for one beside it: what has a
// source is fetched. root is the weights' folder. The error is an *engine.LoadError with the adapter's name, or ctx's.
func (a *agent) adapters(ctx context.Context, root string) ([]engine.Adapter, error) {
	list, err := a.o.Adapters.list()
	if err != nil {
		return nil, err
	}
	if a.o.Adapters.Link != "" && fetches(list) {
		if err := os.MkdirAll(a.o.Adapters.Link, 0o755); err != nil {
			return nil, &engine.LoadError{Reason: fetch.CacheUnwritable, Message: fmt.Sprintf("the folder of the adapters' links: %v", err)}
		}
	}
	var out []engine.Adapter
	for i, x := range list {
		path, err := a.adapter(ctx, i, x, root)
		if err == nil {
			err = usable(path, a.o.FetchOnly)
		}
		if err != nil {
			return nil, ofAdapter(x.Name, err)
		}
		out = append(out, engine.Adapter{Name: x.Name, Path: path})
	}
	return out, nil
}

// adapter returns where the adapter at place i of the list is, after fetching it or comparing it with its digest.
func (a *agent) adapter(ctx context.Context, i int, x adapterSource, root string) (string, error) {
	if x.URI != "" {
		r := fetch.Request{URI: x.URI, File: x.File, Digest: x.Digest, Link: a.o.Adapters.link(i)}
		return a.fetcher.Ensure(ctx, r, func(p fetch.Progress) { a.fetchingAdapter(x.Name, p) })
	}
	path := filepath.Join(root, x.File)
	if _, err := os.Stat(path); err != nil && a.o.Fetch.URI != "" && !a.o.FetchOnly { // of the source of the weights, only they were fetched
		r := fetch.Request{URI: a.o.Fetch.URI, File: x.File, Digest: x.Digest}
		return a.fetcher.Ensure(ctx, r, func(p fetch.Progress) { a.fetchingAdapter(x.Name, p) })
	}
	if x.Digest == "" {
		return path, nil
	}
	return path, weights.Compare(ctx, path, x.Digest, func(percent int) {
		a.state.loading("adapter "+x.Name+": comparing it with its digest", &percent)
	})
}

func (a *agent) fetchingAdapter(name string, p fetch.Progress) {
	message, percent := describeProgress(p)
	a.state.fetching("adapter "+name+": "+message, percent)
}

// placed returns where the engine's own container has the adapters that a container before this one made ready, and keeps
// them in the cache.
func (a *agent) placed() ([]engine.Adapter, error) {
	list, err := a.o.Adapters.list()
	if err != nil {
		return nil, err
	}
	root := a.besideRoot()
	var out []engine.Adapter
	for i, x := range list {
		path := filepath.Join(root, x.File)
		if x.URI != "" {
			path = a.o.Adapters.link(i)
			if err := a.fetcher.Hold(path); err != nil {
				return nil, ofAdapter(x.Name, err)
			}
		}
		if err := usable(path, true); err != nil {
			return nil, ofAdapter(x.Name, err)
		}
		out = append(out, engine.Adapter{Name: x.Name, Path: path})
	}
	return out, nil
}

// besideRoot is the folder below which adapters without a source lie for an engine beside this process.
func (a *agent) besideRoot() string {
	link := a.o.Fetch.Link
	if link == "" {
		return a.o.WeightsDir
	}
	if target, err := filepath.EvalSymlinks(link); err == nil && !isFolder(target) {
		return filepath.Dir(target)
	}
	return link
}

// adapterConfig is the file that makes a folder an adapter.
const adapterConfig = "adapter_config.json"

// usable refuses what the engine could not load: one in this process wants a GGUF file, one beside it a folder.
func usable(path string, beside bool) error {
	refuse := func(reason, format string, args ...any) error {
		return &engine.LoadError{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return refuse(weights.NotFound, "%s is not there; what does not lie beside the weights needs a uri", path)
	case !beside && info.IsDir():
		return refuse(weights.Unsupported, "%s is a folder, and llama.cpp loads an adapter from one GGUF file: convert it, or name the file", path)
	case !beside:
		return nil
	case !info.IsDir():
		return refuse(weights.Unsupported, "%s is one file, and the engine loads an adapter from a folder with %s: leave `file` out, or name a folder", path, adapterConfig)
	}
	if _, err := os.Stat(filepath.Join(path, adapterConfig)); err != nil {
		return refuse(weights.NotFound, "the folder %s has no %s", path, adapterConfig)
	}
	return nil
}

// ofAdapter puts an adapter's name into what is wrong with it; ctx's error stays what it is.
func ofAdapter(name string, err error) error {
	var bad *engine.LoadError
	if errors.As(err, &bad) {
		return &engine.LoadError{Reason: bad.Reason, Message: fmt.Sprintf("adapter %s: %s", name, bad.Message)}
	}
	return fmt.Errorf("adapter %s: %w", name, err)
}

// preload loads the adapters of the list and those that the options name by hand.
func (a *agent) preload(ctx context.Context, e engine.Engine, list []engine.Adapter) error {
	byHand, err := adapters(a.o.Steps.Adapters)
	if err != nil {
		return err
	}
	for _, x := range append(byHand, list...) {
		if err := e.LoadAdapter(ctx, x); err != nil {
			return ofAdapter(x.Name, refusedByEngine(err))
		}
		a.log.Info("An adapter is loaded", "adapter", x.Name, "path", x.Path)
	}
	return nil
}

// refusedByEngine makes of an engine's refusal of an adapter what a model's status shows.
func refusedByEngine(err error) error {
	var invalid *engine.InvalidError
	if errors.As(err, &invalid) {
		return &engine.LoadError{Reason: weights.Unsupported, Message: invalid.Message}
	}
	return err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
