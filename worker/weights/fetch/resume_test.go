package fetch

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// downFrom makes the store fail from the nth request on, until up is called. What was given up before is not answered after
// it.
func downFrom(hub *sourcetest.Hub, n int) (up func()) {
	var fine atomic.Bool
	hub.Fault = func(i int, w http.ResponseWriter, _ *http.Request) bool {
		if i < n || fine.Load() {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	return func() {
		hub.Store.CloseClientConnections()
		fine.Store(true)
	}
}

func TestWhatACrashDamagedIsFetchedAnewOnce(t *testing.T) {
	hub, b := oneFile()
	up := downFrom(hub, 5)
	r := newRig(t, hub)
	_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
	refused(t, err, SourceUnreachable, "503")
	partial := filepath.Join(r.dir, "partial", sourcetest.Sum(b))
	f, err := os.OpenFile(partial, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("lost"), 0); err != nil { // the journal says that it is there
		t.Fatal(err)
	}
	_ = f.Close()
	up()
	if path := r.again().ensure(Request{URI: "hf://org/m"}); !bytes.Equal(content(t, path), b) {
		t.Error("another file")
	}
	if hub.Sent() > 2*int64(len(b))+4*64<<10 {
		t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
	}
}

func TestAnotherRepositoryGoesOnWithAFileThatItShares(t *testing.T) {
	hub, b := oneFile()
	hub.Files["copy.gguf"] = b
	up := downFrom(hub, 6)
	r := newRig(t, hub)
	_, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m", File: "m.gguf"}, nil)
	refused(t, err, SourceUnreachable, "503")
	up()
	r.again().ensure(Request{URI: "hf://org/m", File: "copy.gguf"})
	if hub.Sent() > int64(len(b))+4*64<<10 {
		t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
	}
}

func TestAFetchEndsWithItsContextAndKeepsWhatItHas(t *testing.T) {
	hub, b := oneFile()
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Bool
	hub.Fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n == 6 {
			cancel()
		}
		if n >= 6 && !ended.Load() {
			<-r.Context().Done()
			return true
		}
		return false
	}
	r := newRig(t, hub)
	if _, err := r.Ensure(ctx, Request{URI: "hf://org/m"}, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	ended.Store(true)
	sent := hub.Sent()
	r.ensure(Request{URI: "hf://org/m"})
	if hub.Sent() >= sent+int64(len(b)) {
		t.Errorf("%d bytes before the end of the context and %d after it, of %d", sent, hub.Sent()-sent, len(b))
	}
}

func TestWhoWaitsSeesHowFarTheOtherIs(t *testing.T) {
	hub, _ := oneFile()
	blocked, release := make(chan struct{}), make(chan struct{})
	hub.Fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n == 6 {
			close(blocked)
		}
		if n >= 6 {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return false
	}
	r := newRig(t, hub)
	real := func() *Fetcher {
		f, err := New(r.o, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		small(f)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second := real(), real()
	done := make(chan error, 1)
	go func() {
		_, err := first.Ensure(r.ctx(), Request{URI: "hf://org/m"}, nil)
		done <- err
	}()
	<-blocked
	seen := false
	_, err := second.Ensure(r.ctx(), Request{URI: "hf://org/m"}, func(p Progress) {
		if !seen && p.Stage == Waiting && p.Done > 0 {
			seen = true
			close(release)
		}
	})
	if err := errors.Join(err, <-done); err != nil || !seen {
		t.Errorf("seen %v, %v", seen, err)
	}
	if hub.Sent() != int64(len(hub.Files["m.gguf"])) {
		t.Errorf("%d bytes were sent", hub.Sent())
	}
}

func TestModelsThatAreEnsuredTogetherShareTheirFiles(t *testing.T) {
	hub, b := oneFile()
	hub.Files["copy.gguf"] = b
	r := newRig(t, hub)
	var all errgroup.Group
	for i := range 6 {
		all.Go(func() error {
			path, err := r.Ensure(r.ctx(), Request{URI: "hf://org/m", File: []string{"m.gguf", "copy.gguf"}[i%2]}, func(Progress) {})
			if err == nil && !bytes.Equal(content(t, path), b) {
				err = errors.New("another file")
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if hub.Sent() != int64(len(b)) {
		t.Errorf("%d bytes were sent for a file of %d", hub.Sent(), len(b))
	}
}
