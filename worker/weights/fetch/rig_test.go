package fetch

import (
	"context"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childKey) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// skipping is a clock on which sleeping takes no time: a timer fires at once and moves the time on. Watchdogs fire only when
// they are told to, and tickers never tick.
type skipping struct {
	clock.PassiveClock
	mu    sync.Mutex // guards the rest
	now   time.Time
	slept []time.Duration
	dogs  []chan time.Time
}

func newSkipping() *skipping { return &skipping{now: time.Now()} }

func (s *skipping) Now() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now }

func (s *skipping) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func (s *skipping) After(d time.Duration) <-chan time.Time { return s.NewTimer(d).C() }

func (s *skipping) Sleep(time.Duration) {}

func (s *skipping) Tick(time.Duration) <-chan time.Time { return nil }

func (s *skipping) NewTicker(time.Duration) clock.Ticker { return never{} }

func (s *skipping) NewTimer(d time.Duration) clock.Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan time.Time, 1)
	if d == stall {
		s.dogs = append(s.dogs, c)
		return timer{c}
	}
	s.now = s.now.Add(d)
	s.slept = append(s.slept, d)
	c <- s.now
	return timer{c}
}

// bark fires the watchdogs.
func (s *skipping) bark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.dogs {
		select {
		case c <- s.now:
		default:
		}
	}
}

// longest returns the longest sleep.
func (s *skipping) longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Max(append(s.slept, 0))
}

type timer struct{ c chan time.Time }

func (t timer) C() <-chan time.Time      { return t.c }
func (t timer) Stop() bool               { return false }
func (t timer) Reset(time.Duration) bool { return false }

type never struct{}

func (never) C() <-chan time.Time { return nil }
func (never) Stop()               {}

// rig is a Fetcher and what it fetches from.
type rig struct {
	*Fetcher
	t     *testing.T
	hub   *sourcetest.Hub
	clock *skipping
	dir   string
}

// newRig starts hub and returns a Fetcher with an empty cache that may use it.
func newRig(t *testing.T, hub *sourcetest.Hub, change ...func(*Options)) *rig {
	t.Helper()
	hub.Start()
	t.Cleanup(hub.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Hub.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HF_ENDPOINT": hub.Hub.URL}
	if hub.Private {
		env["HF_TOKEN"] = sourcetest.Token
	}
	o := Options{
		CacheDir: filepath.Join(dir, "cache"), Connections: 4, AllowNetworks: "127.0.0.0/8", CAFile: ca,
		Getenv: func(k string) string { return env[k] },
	}
	for _, c := range change {
		c(&o)
	}
	return openRig(t, hub, o)
}

func openRig(t *testing.T, hub *sourcetest.Hub, o Options) *rig {
	t.Helper()
	c := newSkipping()
	f, err := New(o, c)
	if err != nil {
		t.Fatal(err)
	}
	small(f)
	t.Cleanup(func() { _ = f.Close() })
	return &rig{Fetcher: f, t: t, hub: hub, clock: c, dir: o.CacheDir}
}

// small makes the units fit small files.
func small(f *Fetcher) {
	f.tune = tuning{pieceBytes: 64 << 10, spanPieces: 4}
}

// again returns another Fetcher of the same cache, as another process would have.
func (r *rig) again() *rig { return openRig(r.t, r.hub, r.o) }

// ensure fetches and returns the content of the file.
func (r *rig) ensure(req Request) string {
	r.t.Helper()
	path, err := r.Ensure(r.ctx(), req, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return path
}

// ctx ends when the test hangs.
func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

// refused fails unless err is a LoadError with reason that says all of says and nothing secret.
func refused(t *testing.T, err error, reason string, says ...string) {
	t.Helper()
	var bad *engine.LoadError
	if !errors.As(err, &bad) || bad.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	for _, s := range says {
		if !strings.Contains(bad.Message, s) {
			t.Errorf("%q doesn't say %q", bad.Message, s)
		}
	}
	noSecret(t, bad.Message)
}

func noSecret(t *testing.T, text string) {
	t.Helper()
	for _, s := range []string{sourcetest.Token, "s1gn4ture", "X-Amz", "passw0rd"} {
		if strings.Contains(text, s) {
			t.Errorf("%q holds a credential", text)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// left returns what lies in a folder of the cache, without temporary locks.
func (r *rig) left(folder string) []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, folder))
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
