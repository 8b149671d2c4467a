package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grpcserver/tlstest"
	"github.com/ringfleet/ringfleet/worker/weights"
)

func TestAWorkerServesBeforeItHasLoadedAndAnswersOnceItHas(t *testing.T) {
	may := make(chan struct{})
	load := device(sim.Options{Text: "hello"})
	p := start(t, func(path string, progress func(int)) (*engine.Loaded, error) {
		progress(30)
		<-may
		return load(path, progress)
	}, nil)
	address := p.a.o.HTTPAddress
	waitFor(t, "the load begins", func() bool {
		code, body := get(t, address, "/health")
		return code == http.StatusOK && strings.Contains(string(body), `"progress":30`)
	})
	h := getHealth(t, address)
	if h.ModelLoaded || h.Stage != "Loading" || h.Model != "org/m" || h.Revision != "r1" || len(h.InstanceID) != 32 || h.KV != nil {
		t.Errorf("while loading: %+v", h)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/metrics": 200, "/other": 404} {
		if code, body := get(t, address, path); code != want {
			t.Errorf("while loading %s is %d, want %d: %s", path, code, want, body)
		}
	}
	watch, err := p.router().Watch(within(t), &workerv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetModelLoaded() || r.GetStage() != workerv1.Stage_STAGE_LOADING || r.GetProgressPercent() != 30 {
		t.Fatalf("report while loading: %v, %v", r, err)
	}
	if a := generate(within(t), p.router(), "hi", 10); grpcstatus.Code(a.err) != codes.FailedPrecondition {
		t.Fatalf("generate while loading: %v", a.err)
	}
	close(may)
	if r, err := watch.Recv(); err != nil || !r.GetModelLoaded() || r.GetStage() != workerv1.Stage_STAGE_LOADED || r.GetInstanceId() != h.InstanceID {
		t.Fatalf("report after the load: %v, %v", r, err)
	}
	if code, body := get(t, address, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz after the load is %d: %s", code, body)
	}
	if a := generate(within(t), p.router(), "hi", 10); a.err != nil || a.text != "hello" {
		t.Fatalf("generate: %q, %v", a.text, a.err)
	}
	if h := getHealth(t, address); !h.ModelLoaded || h.Stage != "Loaded" || h.KV == nil || *h.KV.BlocksTotal != 64 || *h.KV.Used != 0 {
		t.Errorf("after the load: %+v", h)
	}
	if _, body := get(t, address, "/metrics"); !strings.Contains(string(body), `vllm:generation_tokens_total{model_name="org/m"} 6`) {
		t.Errorf("metrics lack the six tokens:\n%s", body)
	}
}

func TestADrainLetsRunningRequestsFinishAndTakesNoOthers(t *testing.T) {
	may := make(chan struct{})
	p := start(t, device(sim.Options{Text: "hello", Before: func(*engine.Batch) error { <-may; return nil }}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	c := p.router()
	watch, err := c.Watch(within(t), &workerv1.WatchRequest{IntervalMilliseconds: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), c, "hi", 10) }()
	waitFor(t, "the request runs", func() bool { return p.a.state.metrics().Stats.Running == 1 })

	p.kill()
	if r, err := watch.Recv(); err != nil || !r.GetDraining() || r.GetStage() != workerv1.Stage_STAGE_DRAINING {
		t.Fatalf("report: %v, %v", r, err)
	}
	if a := generate(within(t), c, "hi", 10); grpcstatus.Code(a.err) != codes.Unavailable {
		t.Fatalf("a new request: %v", a.err)
	}
	if code, _ := get(t, p.a.o.HTTPAddress, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz while draining is %d", code)
	}
	if code, _ := get(t, p.a.o.HTTPAddress, "/livez"); code != http.StatusOK {
		t.Errorf("/livez while draining is %d", code)
	}
	close(may)
	if a := <-running; a.err != nil || a.text != "hello" {
		t.Fatalf("the running request: %q, %v", a.text, a.err)
	}
	if err := p.end(); err != nil {
		t.Fatalf("ended with %v", err)
	}
}

func TestAWorkerThatDrainsStaysForTwoHeartbeats(t *testing.T) {
	p := start(t, device(sim.Options{Text: "x"}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	before := p.clock.Now()
	p.kill()
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	if stayed := p.clock.Since(before); stayed < notice {
		t.Fatalf("stayed for %s", stayed)
	}
}

func TestTheDrainTimeoutEndsWhatStillRuns(t *testing.T) {
	// It would take minutes. A step takes real time, which the clock of the worker does not know.
	p := start(t, device(sim.Options{Text: strings.Repeat("x", 250), Step: time.Second}), func(o *Options) { o.Server.Stall = 24 * time.Hour })
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	running := make(chan answer, 1)
	c := p.router()
	go func() { running <- generate(within(t), c, "hi", 200) }()
	waitFor(t, "the request runs", func() bool { return p.a.state.metrics().Stats.Running == 1 })
	p.kill()
	waitFor(t, "draining", func() bool { now, _ := p.a.state.Status(); return now.Draining })
	waitFor(t, "the timer", p.clock.HasWaiters)
	p.clock.Step(p.a.o.DrainTimeout)
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	if a := <-running; a.err == nil || a.finish != nil {
		t.Fatalf("the running request ended with %v", a.finish)
	}
}

func TestBadWeightsLeaveTheWorkerUpUntilTheyAreMended(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(dir string) error
		reason string
	}{
		"there are none": {func(dir string) error { return os.Remove(filepath.Join(dir, "w.gguf")) }, weights.NotFound},
		"they are cut":   {func(dir string) error { return os.Truncate(filepath.Join(dir, "w.gguf"), 100) }, weights.Truncated},
		"they are something else": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "w.gguf"), []byte("<html>not a model, but long enough to be one</html>"), 0o600)
		}, weights.NotGGUF},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, device(sim.Options{Text: "hello"}), func(o *Options) {
				if err := c.spoil(o.WeightsDir); err != nil {
					t.Fatal(err)
				}
			})
			waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
			h := getHealth(t, p.a.o.HTTPAddress)
			if h.ModelLoaded || h.Stage != "Failed" || h.Reason != c.reason || h.Message == "" {
				t.Errorf("health is %+v, want reason %s", h, c.reason)
			}
			if code, _ := get(t, p.a.o.HTTPAddress, "/livez"); code != http.StatusOK {
				t.Errorf("/livez is %d", code)
			}
			writeWeights(t, p.a.o.WeightsDir)
			waitFor(t, "the load", func() bool {
				p.clock.Step(recheck)
				return p.stage() == workerv1.Stage_STAGE_LOADED
			})
			if a := generate(within(t), p.router(), "hi", 10); a.text != "hello" || a.err != nil {
				t.Errorf("generate: %q, %v", a.text, a.err)
			}
		})
	}
}

func TestWeightsOfAnotherDigestAreRefused(t *testing.T) {
	p := start(t, device(sim.Options{}), func(o *Options) { o.WeightsDigest = "sha256:" + strings.Repeat("0", 64) })
	waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	if h := getHealth(t, p.a.o.HTTPAddress); h.Reason != weights.DigestMismatch || !strings.Contains(h.Message, "w.gguf") {
		t.Errorf("health is %+v", h)
	}
}

func TestALibraryThatCanNotBeUsedEndsTheWorker(t *testing.T) {
	broken := errors.New("no such library")
	p := start(t, func(string, func(int)) (*engine.Loaded, error) { return nil, broken }, nil)
	if err := p.end(); !errors.Is(err, broken) {
		t.Fatalf("ended with %v", err)
	}
}

func TestABrokenEngineEndsTheWorker(t *testing.T) {
	p := start(t, device(sim.Options{Text: "x", Before: func(*engine.Batch) error { return fmt.Errorf("lost: %w", engine.ErrFatal) }}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	if a := generate(within(t), p.router(), "hi", 10); grpcstatus.Code(a.err) != codes.Internal {
		t.Fatalf("the request ended with %v", a.err)
	}
	if err := p.end(); !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("ended with %v", err)
	}
}

func TestMissingCredentialsAreWaitedForAndThenNamed(t *testing.T) {
	var dir string
	p := start(t, device(sim.Options{Text: "x"}), func(o *Options) {
		dir = o.TLSDir
		if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
			t.Fatal(err)
		}
	})
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "tls.key") || !strings.Contains(err.Error(), "--tls-dir") {
		t.Fatalf("ended with %v", err)
	}
}

func TestTheCertificateOfAnotherRoleIsRefused(t *testing.T) {
	p := start(t, device(sim.Options{Text: "x"}), func(o *Options) {
		tlstest.New(t).Folder(t, o.TLSDir, identity.ID{Namespace: "team", Role: identity.Router})
	})
	const want = "tls.crt is for spiffe://ringfleet/ns/team/role/router, this process is spiffe://ringfleet/ns/team/role/worker"
	if err := p.end(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--tls-dir") {
		t.Fatalf("ended with %v", err)
	}
}

func TestAnAddressInUseIsAnErrorAtOnce(t *testing.T) {
	p := start(t, device(sim.Options{}), func(o *Options) { o.GRPCAddress = o.HTTPAddress })
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "--grpc-address") {
		t.Fatalf("ended with %v", err)
	}
}

func TestASigtermBeforeTheLoadIsOverEndsAtOnce(t *testing.T) {
	began, may := make(chan struct{}), make(chan struct{})
	load := device(sim.Options{})
	p := start(t, func(path string, progress func(int)) (*engine.Loaded, error) {
		close(began)
		<-may
		return load(path, progress)
	}, nil)
	<-began
	p.kill()
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	close(may)
}
