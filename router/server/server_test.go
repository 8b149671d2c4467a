package server

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/identity"
	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/telemetry"
)

func TestARouterServesOnceItKnowsTheFleet(t *testing.T) {
	r := start(t, func(*Options) {})
	if status, why := r.get(2, "/readyz"); status != 503 || !strings.Contains(why, "not synced") {
		t.Errorf("ready before it knows anything: %d %s", status, why)
	}
	if status, _ := r.get(2, "/livez"); status != 200 {
		t.Errorf("live %d", status)
	}
	if resp, err := r.chat(ask); err != nil || resp.StatusCode != 503 || !strings.Contains(body(t, resp), "router_starting") {
		t.Errorf("a request before the first sync: %v %v", resp, err)
	}
	close(r.answer)
	r.ready()

	resp, err := r.chat(ask)
	if err != nil {
		t.Fatal(err)
	}
	got := body(t, resp)
	if resp.StatusCode != 200 || !strings.Contains(got, `"content":"Hello"`) || !strings.Contains(got, `"finish_reason":"length"`) ||
		!strings.Contains(got, `"prompt_tokens":4,"completion_tokens":2`) {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if w := resp.Header.Get("X-Ringfleet-Worker"); w != "w-0" && w != "w-1" {
		t.Errorf("worker %q", w)
	}
	if resp, err = r.chat(askStream); err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); !strings.HasSuffix(got, "data: [DONE]\n\n") || !strings.Contains(got, `"content":"Hel"`) {
		t.Errorf("stream %s", got)
	}
	calls := append(r.workers[0].seen(), r.workers[1].seen()...)
	if len(calls) != 2 || calls[0].MaxTokens+calls[1].MaxTokens != 2 || calls[0].ExpectedRevision != "r1" ||
		string(calls[0].GetChat().Messages) != `[{"role":"user","content":"x"}]` {
		t.Errorf("workers saw %v", calls)
	}
	if a, b := len(r.workers[0].seen()), len(r.workers[1].seen()); a != 0 && b != 0 {
		t.Errorf("one conversation met both workers: %d, %d", a, b)
	}
	if status, list := r.get(0, "/v1/models/alias%2Fof-m"); status != 200 || !strings.Contains(list, "alias/of-m") {
		t.Errorf("%d %s", status, list)
	}
	_, figures := r.get(2, "/metrics")
	for _, want := range []string{`ringfleet_router_requests_total{model="m",outcome="ok"} 2`, `ringfleet_router_ring_members{model="m"} 2`,
		`ringfleet_router_requests_total{model="unknown",outcome="no_worker"} 1`, "ringfleet_router_synced 1",
		`ringfleet_router_time_to_first_token_seconds_count{model="m"} 2`} {
		if !strings.Contains(figures, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestARetryIsCountedAndLoggedWithoutWhatTheWorkerSaid(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	r.ready()
	var calls atomic.Int32
	for _, w := range r.workers {
		w.mu.Lock()
		w.fails = func() error {
			if calls.Add(1) == 1 {
				return status.Error(codes.Internal, "a part of a prompt")
			}
			return nil
		}
		w.mu.Unlock()
	}
	resp, err := r.chat(ask)
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}
	second := resp.Header.Get("X-Ringfleet-Worker")
	first := map[string]string{"w-0": "w-1", "w-1": "w-0"}[second]
	want := fmt.Sprintf(`request_id=%s model=m worker=%s why="the worker's engine failed" next=%s`, resp.Header.Get("X-Request-Id"), first, second)
	if log := r.written.String(); strings.Count(log, want) != 1 || strings.Contains(log, "a part of a prompt") {
		t.Errorf("not once %s, or what the worker said, in\n%s", want, log)
	}
	if _, figures := r.get(2, "/metrics"); !strings.Contains(figures, `ringfleet_router_retries_total{model="m"} 1`) {
		t.Error("the retry is not counted")
	}
}

func TestTheManagerAsksForStatusAndNobodyElseMay(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	ask := func(role identity.Role) (*routerv1.StatusResponse, error) {
		conn := r.dial(role)
		defer func() { _ = conn.Close() }()
		return routerv1.NewRouterClient(conn).Status(t.Context(), &routerv1.StatusRequest{})
	}
	got, err := ask(identity.Manager)
	if err != nil {
		t.Fatal(err)
	}
	if got.Router != "router-0" || !got.Synced || len(got.Models) != 1 || got.Models[0].Model != "m" || got.Models[0].RingVersion == 0 {
		t.Errorf("status %v", got)
	}
	for i, w := range got.Models[0].Workers {
		if !w.InRing || w.Health != routerv1.Health_HEALTH_UP || w.PodName != r.workers[i].name || w.Report.GetInstanceId() != w.PodName+"-a" {
			t.Errorf("worker %v", w)
		}
	}
	if _, err := ask(identity.Worker); err == nil {
		t.Error("a worker got an answer")
	}
}

func TestWithoutWorkersAClientThatWaitsNoLongerIsToldWhatFor(t *testing.T) {
	r := start(t, func(*Options) {})
	s := r.fleetState()
	s.Models[0].Candidates = nil
	r.states <- s
	r.eventually("readiness", func() bool { status, _ := r.get(2, "/readyz"); return status == 200 })
	resp, err := r.chat(ask, telemetry.HeaderTimeout, "0.2")
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, resp); resp.StatusCode != 503 || !strings.Contains(got, "no_capacity") || !strings.Contains(got, "has waited") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	s.Models = nil
	r.states <- s
	r.eventually("the model's end", func() bool { status, _ := r.get(0, "/v1/models/m"); return status == 404 })
}

func TestRequestsForAModelThatSleepsWakeItAndAreAnswered(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	s := r.fleetState()
	s.Models[0].Candidates = nil
	r.states <- s
	r.eventually("readiness", func() bool { status, _ := r.get(2, "/readyz"); return status == 200 })
	const requests = 5
	answered := make(chan int, requests)
	for range requests {
		go func() {
			resp, err := r.chat(ask)
			if err != nil {
				answered <- 0
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			answered <- resp.StatusCode
		}()
	}
	r.eventually("all wait", func() bool { return r.fleet.gate.Stats("uid-m").Held == requests })
	conn := r.dial(identity.Manager)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	wakes, err := routerv1.NewRouterClient(conn).WatchWakes(ctx, &routerv1.WatchWakesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // at once, and a second later again
		wake, err := wakes.Recv()
		if err != nil || wake.GetModelUid() != "uid-m" || wake.GetWakes() != 1 {
			t.Fatalf("%v %v", wake, err)
		}
	}
	cancel()
	if _, text := r.get(2, "/metrics"); !strings.Contains(text, `ringfleet_router_requests_held{model="m"} 5`) {
		t.Error("the metrics don't say that 5 requests are held")
	}
	r.states <- r.fleetState()
	for range requests {
		if status := <-answered; status != 200 {
			t.Errorf("status %d", status)
		}
	}
}

// TestRequestsWaitForAWorkerThatIsGoneAndStillInTheRing stops the only worker of a ring that would take an hour to see it.
func TestRequestsWaitForAWorkerThatIsGoneAndStillInTheRing(t *testing.T) {
	r := start(t, func(*Options) {})
	close(r.answer)
	s := r.fleetState()
	s.Settings.Heartbeat.FailuresToDrop = 36000
	both := s.Models[0].Candidates
	s.Models[0].Candidates = both[:1]
	r.states <- s
	r.eventually("the first worker in the ring", func() bool { return r.fleet.board.View("uid-m").InRing() == 1 })
	r.workers[0].stop()
	const requests = 3
	answered := make(chan string, requests)
	for range requests {
		go func() {
			resp, err := r.chat(ask)
			if err != nil {
				answered <- err.Error()
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			answered <- fmt.Sprintf("%d from %s", resp.StatusCode, resp.Header.Get(telemetry.HeaderWorker))
		}()
	}
	r.eventually("all wait", func() bool { return len(answered) > 0 || r.fleet.gate.Stats("uid-m").Held == requests })
	if n := r.fleet.board.View("uid-m").InRing(); n != 1 {
		t.Errorf("%d workers are in the ring", n)
	}
	s.Models[0].Candidates = both
	r.states <- s
	for range requests {
		if got := <-answered; got != "200 from w-1" {
			t.Error(got)
		}
	}
}

func TestAnAnswerGoesOnAtTheOtherWorkerWhenItsOwnIsLost(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	resp, err := r.chat(askStream)
	if err != nil {
		t.Fatal(err)
	}
	r.eventually("what it would go on with is counted", func() bool {
		_, text := r.get(2, "/metrics")
		return strings.Contains(text, "ringfleet_router_answers_kept_bytes ") && !strings.Contains(text, "ringfleet_router_answers_kept_bytes 0\n")
	})
	first := resp.Header.Get(telemetry.HeaderWorker)
	for _, w := range r.workers {
		if w.name == first {
			w.stop()
		}
	}
	close(r.answer)
	got := body(t, resp)
	if strings.Count(got, `"content":"Hel"`) != 1 || strings.Count(got, `"content":"lo"`) != 1 || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("from %s: %s", first, got)
	}
	if _, text := r.get(2, "/metrics"); !strings.Contains(text, `ringfleet_router_resumes_total{model="m"} 1`) {
		t.Error("the metrics count no answer that went on")
	}
}

func TestWhyAWorkerWasChosenIsToldInAHeaderAndKept(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	close(r.answer)
	resp, err := r.chat(ask, telemetry.HeaderRequestID, "one-of-many")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get(telemetry.HeaderReason); !strings.HasPrefix(got, "LeastPredictedTTFT;wait=") || !strings.Contains(got, "eligible=2/2;next=w-") {
		t.Errorf("reason %q", got)
	}
	if _, text := r.get(2, "/decisions?request_id=one-of-many"); !strings.Contains(text, `"RequestID": "one-of-many"`) || strings.Count(text, "RequestID") != 1 {
		t.Errorf("decisions %s", text)
	}
}

func TestADrainFinishesWhatRunsAndServesWhatComesMeanwhile(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := startWith(t, clock, func(o *Options) { o.DrainSettle = 5 * time.Second })
	r.ready()
	running, err := r.chat(askStream)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.eventually("unreadiness", func() bool { status, _ := r.get(2, "/readyz"); return status == 503 })
	late, err := r.chat(askStream)
	if err != nil {
		t.Fatal(err)
	}
	if late.StatusCode != 200 || !late.Close {
		t.Errorf("a request while it settles: %d, close %v", late.StatusCode, late.Close)
	}
	r.eventually("the wait for the others", clock.HasWaiters)
	clock.Step(5 * time.Second)
	r.eventually("the listener's end", func() bool { status, _ := r.get(0, "/v1/models"); return status == 0 })
	close(r.answer)
	for _, resp := range []*http.Response{running, late} {
		if got := body(t, resp); !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("cut: %s", got)
		}
	}
	if err := r.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestWhatOutlivesTheDrainGetsOneError(t *testing.T) {
	r := start(t, func(o *Options) { o.DrainTimeout = 50 * time.Millisecond })
	r.ready()
	running, err := r.chat(askStream)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	got := body(t, running)
	if strings.Count(got, "server_shutdown") != 1 || strings.Contains(got, "[DONE]") || !strings.Contains(got, `"content":"Hel"`) {
		t.Errorf("stream %s", got)
	}
	if err := r.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestOptionsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	env := map[string]string{"POD_NAMESPACE": "ns", "POD_NAME": "p", "RINGFLEET_DRAIN_SETTLE": "7s", "RINGFLEET_HTTP_ADDRESS": ":1"}
	var o Options
	f := flag.NewFlagSet("router", flag.ContinueOnError)
	o.bind(f, func(key string) string { return env[key] })
	if err := f.Parse([]string{"--http-address=:2"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if o.Namespace != "ns" || o.PodName != "p" || o.DrainSettle != 7*time.Second || o.HTTPAddress != ":2" || o.MaxBodyBytes != 10<<20 || o.MaxBodyBytesTotal != 128<<20 {
		t.Errorf("%+v", o)
	}
}

func TestOptionsThatCannotWorkAreNamed(t *testing.T) {
	env := map[string]string{"RINGFLEET_MAX_BODY_BYTES": "many", "RINGFLEET_DRAIN_TIMEOUT": "1s"}
	var o Options
	o.bind(flag.NewFlagSet("router", flag.ContinueOnError), func(key string) string { return env[key] })
	o.MaxBodyBytes = 16 << 20 // more than a worker takes
	o.MaxBodyBytesTotal, o.MaxKeptBytes = 1, 1
	err := o.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"RINGFLEET_MAX_BODY_BYTES", "--namespace", "--pod-name", "--drain-timeout 1s", "--max-body-bytes 16777216", "--max-kept-bytes 1: want 1048576", "--max-body-bytes-total 1: want 121634816"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}

func TestARouterTakesOnlyTheCertificateOfARouterOfItsNamespace(t *testing.T) {
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		id   identity.ID
		want string
	}{
		"another role":      {identity.ID{Namespace: "ns", Role: identity.Worker}, "role/worker, this process is spiffe://ringfleet/ns/ns/role/router"},
		"another namespace": {identity.ID{Namespace: "other", Role: identity.Router}, "ns/other"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // so that it looks once
			_, err := openKeys(ctx, clocktesting.NewFakeClock(time.Now()), logr.Discard(), ca.folder(c.id), "ns")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--tls-dir") {
				t.Errorf("%v", err)
			}
		})
	}
}
