// Package fetch makes sure that a model's weights are on this machine, whole and checked, before an engine sees them. It
// decides which files of a source make up a model, how they are fetched (ranges side by side, resumed, retried), and when a
// file is good. Where files come from is package source's, where they lie and who else uses them is package cache's, which
// addresses may be dialled is package egress's. Nothing but GGUF, safetensors and the small files that go with the latter
// is fetched: no program, no pickle.
package fetch

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/weights/cache"
	"github.com/ringfleet/ringfleet/worker/weights/egress"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Request says which weights are wanted.
type Request struct {
	// URI is where they are: see source.Parse.
	URI string
	// File is the one file that is wanted, where the source holds several models. Empty: the only *.gguf, or else all
	// *.safetensors with what belongs to them.
	File string
	// Allow are patterns, as path.Match has them, of the names that are looked at; a pattern without a slash is matched
	// with the last part of a name. Empty: all.
	Allow []string
	// Digest is "sha256:" and 64 hexadecimal digits: of the manifest for oci, of the file otherwise. Empty: the source's word is
	// taken.
	Digest string
	// Link is the path of a symbolic link that is made to lead to the result; empty: none.
	Link string
}

// Fetcher fetches weights into a cache. Its methods may be called from any goroutine.
type Fetcher struct {
	o     Options
	clock clock.WithTicker
	roots *x509.CertPool
	allow []netip.Prefix
	tune  tuning

	mu    sync.Mutex // guards cache
	cache *cache.Cache
}

// tuning holds sizes that tests make small.
type tuning struct {
	pieceBytes int64 // 0: the cache's own
	spanPieces int64 // pieces of one request
	cacheBytes int64 // 0: as the options have it
	reserve    func(*os.File, int64) error
}

// New returns a Fetcher, after Validate. It touches neither network nor cache.
func New(o Options, c clock.WithTicker) (*Fetcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	f := &Fetcher{o: o, clock: c, tune: tuning{spanPieces: 16}}
	var err error
	if f.allow, err = egress.Networks(o.AllowNetworks); err != nil {
		return nil, fmt.Errorf("--weights-allow-networks: %w", err)
	}
	if o.CAFile == "" {
		return f, nil
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--weights-ca-file: %w", err)
	}
	if f.roots, err = x509.SystemCertPool(); err != nil {
		f.roots = x509.NewCertPool()
	}
	if !f.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--weights-ca-file %s: holds no certificate", o.CAFile)
	}
	return f, nil
}

// Ensure returns where r's weights are, after fetching what of them is not in the cache: the path of one GGUF or
// safetensors file under its own name, or of a folder with a safetensors model. They stay until Close. progress, if not nil,
// is called from one goroutine at a time, at most four times a second, and once more at the end. The error is an
// *engine.LoadError with one of the reasons of this package or of package weights, or ctx's.
func (f *Fetcher) Ensure(ctx context.Context, r Request, progress func(Progress)) (string, error) {
	m := newMeter(f.clock, progress)
	path, err := f.ensure(ctx, r, m)
	m.stop(err == nil)
	if err != nil {
		return "", loadError(ctx, err)
	}
	return path, nil
}

// Hold keeps the weights at path in the cache until Close: path is what Ensure returned, in this process or another, or a link to
// that. The error is an *engine.LoadError.
func (f *Fetcher) Hold(path string) error {
	c, err := f.open()
	if err == nil {
		err = c.Hold(path)
	}
	if err != nil {
		return loadError(context.Background(), err)
	}
	return nil
}

// Close lets the files go that Ensure and Hold have returned, when room is needed. A process that ends without it keeps them
// for some minutes more, for the next container of its pod.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache == nil {
		return nil
	}
	c := f.cache
	f.cache = nil
	return c.Close()
}

// open opens the cache once. What went wrong is tried again at the next call.
func (f *Fetcher) open() (*cache.Cache, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache != nil {
		return f.cache, nil
	}
	most := int64(f.o.CacheGibibytes) << 30
	if f.tune.cacheBytes > 0 {
		most = f.tune.cacheBytes
	}
	c, err := cache.Open(f.o.CacheDir, cache.Options{Clock: f.clock, MaxBytes: most, PieceBytes: f.tune.pieceBytes, Reserve: f.tune.reserve})
	if err != nil {
		return nil, err
	}
	f.cache = c
	return c, nil
}

func (f *Fetcher) ensure(ctx context.Context, r Request, m *meter) (string, error) {
	u, err := source.Parse(r.URI)
	if err != nil {
		return "", err
	}
	if err := r.validate(u); err != nil {
		return "", err
	}
	if u.Scheme == source.PVC || u.Scheme == source.Local {
		return f.inPlace(ctx, u, r, m)
	}
	c, err := f.open()
	if err != nil {
		return "", err
	}
	src, end, err := source.Open(u, r.File, source.Options{
		Getenv: f.getenv, AllowNetworks: f.allow, RootCAs: f.roots, InstanceRole: f.o.InstanceRole, RegistryConfig: f.o.RegistryConfig,
		PlainRegistries: commas(f.o.PlainRegistries), Connections: f.o.Connections, Now: f.clock.Now,
	})
	if err != nil {
		return "", err
	}
	defer end()
	j := &job{f: f, cache: c, src: src, uri: u, request: r, meter: m}
	j.retry = &retry{clock: f.clock, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), note: m.note}
	path, err := j.run(ctx)
	if err != nil || r.Link == "" {
		return path, err
	}
	return path, c.Point(r.Link, path)
}

// validate refuses what contradicts itself.
func (r Request) validate(u source.URI) error {
	if r.Digest != "" && sumOf(r.Digest) == "" {
		return refuse(DigestMismatch, "the digest %q is none: expected sha256: and 64 hexadecimal digits", r.Digest)
	}
	if u.Scheme == source.OCI && u.Digest != "" && r.Digest != "" && !strings.EqualFold(u.Digest, r.Digest) {
		return refuse(DigestMismatch, "%s names another digest than the one that is wanted, %s", u, r.Digest)
	}
	if r.File != "" && !isWeights(r.File) {
		return refuse(Unsupported, "the weights file %s is neither *.gguf nor *.safetensors: nothing else is loaded", r.File)
	}
	for _, p := range r.Allow {
		if _, err := path.Match(p, ""); err != nil {
			return refuse(NotFound, "the pattern %q is malformed", p)
		}
	}
	return nil
}

// sumOf returns the hexadecimal digits of a digest, or nothing.
func sumOf(digest string) string {
	s, ok := strings.CutPrefix(strings.ToLower(digest), "sha256:")
	if !ok || !isSum(s) {
		return ""
	}
	return s
}

func isSum(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

func commas(list string) []string {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (f *Fetcher) getenv(key string) string {
	if f.o.Getenv != nil {
		return f.o.Getenv(key)
	}
	return os.Getenv(key)
}
