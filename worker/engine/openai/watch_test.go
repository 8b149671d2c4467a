package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// TestTheWatchJudgesByWhatItSees runs the transcript of a server's life.
func TestTheWatchJudgesByWhatItSees(t *testing.T) {
	var w watch
	begin := time.Unix(1_800_000_000, 0)
	datadriven.RunTest(t, "testdata/watch", func(t *testing.T, d *datadriven.TestData) string {
		number := func(key string) *float64 {
			for _, a := range d.CmdArgs {
				if a.Key == key {
					v, err := strconv.ParseFloat(a.Vals[0], 64)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					return &v
				}
			}
			return nil
		}
		at := begin
		if s := number("at"); s != nil {
			at = begin.Add(time.Duration(*s * float64(time.Second)))
		}
		f := &figures{generated: number("made"), started: number("started")}
		switch d.Cmd {
		case "new":
			w = watch{stall: time.Duration(*number("stall")) * time.Second, state: State{Reason: Starting, Message: "no answer yet"}}
		case "loaded":
			w.loaded(at, f)
		case "healthy":
			w.healthy(at, f, int(*number("inside")))
		case "token":
			w.progressed(at)
		case "unhealthy", "failed":
			err := errors.New("it answered 503")
			if d.HasArg("refused") {
				err = syscall.ECONNREFUSED
			}
			if d.Cmd == "failed" {
				w.failed(err)
			} else {
				w.unhealthy(err)
			}
		default:
			d.Fatalf(t, "no command %q", d.Cmd)
		}
		s := w.state
		if s.Loaded {
			return fmt.Sprintf("loaded, epoch %d\n", s.Epoch)
		}
		return fmt.Sprintf("%s, epoch %d: %s\n", s.Reason, s.Epoch, s.Message)
	})
}

func TestNothingIsAskedOfAServerThatIsNotLoaded(t *testing.T) {
	d := newDouble(t, "vllm")
	d.health = http.StatusServiceUnavailable
	w := newWatched(t, d.url())
	w.until("it has been asked", func(s State) bool { return strings.Contains(s.Message, "503") })
	for name, err := range map[string]error{
		"generate": func() error { _, err := w.Generate(context.Background(), text("a")); return err }(),
		"tokenise": func() error { _, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"}); return err }(),
		"health":   w.Health(context.Background()),
	} {
		if !errors.Is(err, engine.ErrNotLoaded) || !strings.Contains(err.Error(), string(Starting)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := d.times(completionPath) + d.times(chatPath); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
	d.change(func(d *double) { d.health = 0 })
	if s := w.until("it is loaded", func(s State) bool { return s.Loaded }); s.Epoch != 1 {
		t.Errorf("the first epoch is %d", s.Epoch)
	}
}

func TestARequestThatFindsTheServerGoneIsNotLoaded(t *testing.T) {
	for name, ask := range map[string]func(*Driver) error{
		"generate": func(w *Driver) error { _, err := w.Generate(context.Background(), text("a")); return err },
		"tokenise": func(w *Driver) error {
			_, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t, "vllm")
			d.keepNone()
			w := watchIt(t, d)
			d.stop() // the clock stands: the driver has not looked since
			if err := ask(w.Driver); !errors.Is(err, engine.ErrNotLoaded) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestARequestThatMayHaveReachedAServerThatIsGoneNowHasFailed(t *testing.T) {
	gone := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	if !unsent(broken(gone)) || unsent(broken(&sentError{gone})) || !refused(broken(&sentError{gone})) {
		t.Errorf("the first try is unsent %t, the second %t", unsent(broken(gone)), unsent(broken(&sentError{gone})))
	}
}

func TestHealthAloneIsNotLoaded(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[completionPath] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, `{"choices":[]}`) }
	w := newWatched(t, d.url())
	w.until("its completion was looked at", func(s State) bool { return strings.Contains(s.Message, "a completion of one token") })
	d.change(func(d *double) { delete(d.paths, completionPath) })
	w.until("it is loaded", func(s State) bool { return s.Loaded })
}

func TestAServerWhoseCompletionHangsIsNotLoaded(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[completionPath] = func(_ http.ResponseWriter, r *http.Request, _ map[string]any) { d.hang(r) }
	w := newWatched(t, d.url(), func(o *Options) { o.Warmup = time.Minute })
	w.until("its time is over", func(s State) bool { return strings.Contains(s.Message, "did not answer for 1m0s") })
}

func TestAServerThatMakesNoTokenIsStalled(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	d.neverEnd()
	s, err := w.Generate(context.Background(), text("a"))
	if err != nil {
		t.Fatal(err)
	}
	state := w.until("it is stalled", func(s State) bool { return !s.Loaded })
	if state.Reason != Stalled || state.Epoch != 1 {
		t.Errorf("the state is %+v", state)
	}
	if _, _, err := all(s); !errors.Is(err, ErrStalled) {
		t.Errorf("the request ended with %v", err)
	}
	wait(t, "the connection is closed", func() bool { return d.streams() == 0 })
	w.until("it serves again", func(s State) bool { return s.Loaded })
}

func TestAnIdleServerNeverStalls(t *testing.T) {
	w := watchIt(t, newDouble(t, "vllm"))
	begin := w.clock.Now()
	w.pass("ten minutes pass", func() bool { return w.clock.Since(begin) > 10*time.Minute })
	if s, _ := w.State(); !s.Loaded || s.Epoch != 1 {
		t.Errorf("the state is %+v", s)
	}
}

func TestAnotherProcessIsAnotherEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *double)
		reason Reason
	}{
		"nobody listens for a moment":    {func(d *double) { d.stop() }, Gone},
		"the process is a younger one":   {func(d *double) { d.change(func(d *double) { d.metrics = "process_start_time_seconds 200\n" }) }, Restarted},
		"its counters begin at 0 again":  {func(d *double) { d.change(func(d *double) { d.metrics = "vllm:generation_tokens_total 1\n" }) }, Restarted},
		"its health check fails 3 times": {func(d *double) { d.change(func(d *double) { d.health = 500 }) }, Unhealthy},
		"its health check hangs 3 times": {func(d *double) { d.change(func(d *double) { d.health = -1 }) }, Unhealthy},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			d := newDouble(t, "vllm")
			d.metrics = "process_start_time_seconds 100\nvllm:generation_tokens_total 7\n"
			w := watchIt(t, d, func(o *Options) {
				if strings.Contains(name, "hangs") {
					o.Patience = time.Minute
				}
			})
			if strings.Contains(name, "counters") {
				d.change(func(d *double) { d.metrics = "vllm:generation_tokens_total 7\n" })
				w.pass("it is seen", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.seen.started == nil })
			}
			_, changed := w.State()
			c.change(d)
			var lost State
			w.pass("the change is told", func() bool {
				select {
				case <-changed:
					lost, _ = w.State()
					return true
				default:
					return false
				}
			})
			if lost.Loaded || lost.Reason != c.reason {
				t.Errorf("the state is %+v", lost)
			}
			if c.reason == Gone {
				d.start(d.addr)
			}
			d.change(func(d *double) { d.health = 0 })
			again := w.until("it serves again", func(s State) bool { return s.Loaded })
			if want := uint64(2); again.Epoch != want && c.reason != Unhealthy || c.reason == Unhealthy && again.Epoch != 1 {
				t.Errorf("the epoch is %d", again.Epoch)
			}
			if got, _, err := run(w, text("a")); err != nil || got != "Hello you" {
				t.Errorf("then a request gave %q, %v", got, err)
			}
		})
	}
}

func TestABrokenStreamMakesTheWatchLookAtOnce(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	d.neverEnd()
	s, err := w.Generate(context.Background(), text("a"))
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	_, _, err = all(s)
	if err == nil {
		t.Error("the stream of a process that is gone has no error")
	}
	t.Cleanup(func() {
		if s, _ := w.State(); t.Failed() {
			t.Logf("the stream ended by %v, and the watch says %+v", err, s)
		}
	})
	wait(t, "it is seen to be gone, by a clock that stands still", func() bool { s, _ := w.State(); return s.Reason == Gone })
	d.start(d.addr)
}

func TestAHealthCheckWhoseConnectionBreaksIsMadeAgain(t *testing.T) {
	d := newDouble(t, "vllm")
	d.keepNone()                                                         // on a connection that was used before, net/http asks again by itself
	w := watchIt(t, d, func(o *Options) { o.Interval = 24 * time.Hour }) // the only check is that below
	asked := 0
	d.change(func(d *double) {
		d.paths["/health"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			if asked++; asked == 1 {
				cut(w)
			}
		}
	})
	w.check(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	if asked != 2 || w.watch.misses != 0 {
		t.Errorf("it was asked %d times, and missed %d", asked, w.watch.misses)
	}
}

func TestARestartedServerGetsItsAdaptersBack(t *testing.T) {
	d := newDouble(t, "vllm")
	loads := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {}
	d.paths["/v1/load_lora_adapter"], d.paths["/v1/unload_lora_adapter"] = loads, loads
	w := watchIt(t, d, func(o *Options) { o.Adapters = true })
	for _, name := range []string{"one", "two"} {
		if err := w.LoadAdapter(context.Background(), engine.Adapter{Name: name, Path: "/adapters/" + name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.UnloadAdapter(context.Background(), "two"); err != nil {
		t.Fatal(err)
	}
	before := d.times("/v1/load_lora_adapter")
	d.stop()
	w.until("it is gone", func(s State) bool { return !s.Loaded })
	d.start(d.addr)
	w.until("it serves again", func(s State) bool { return s.Loaded })
	if n := d.times("/v1/load_lora_adapter") - before; n != 1 {
		t.Errorf("%d adapters were loaded again; there was one", n)
	}
	r := text("a")
	r.Adapter = "one"
	if _, _, err := run(w, r); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(d.bodies, func(b map[string]any) bool { return b["model"] == "one" }) {
		t.Error("no request went to the adapter")
	}
}

// loras makes d have adapters as vLLM does, which refuses one of a name that it has, and to let one go that it has not.
func loras(d *double, has ...string) {
	d.paths["/v1/load_lora_adapter"] = func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		d.mu.Lock()
		defer d.mu.Unlock()
		name, _ := body["lora_name"].(string)
		if slices.Contains(has, name) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"The lora adapter '%s' has already been loaded.","type":"InvalidUserInput"}}`, name)
			return
		}
		has = append(has, name)
	}
	d.paths["/v1/unload_lora_adapter"] = func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		d.mu.Lock()
		defer d.mu.Unlock()
		at := slices.Index(has, body["lora_name"].(string))
		if at < 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		has = slices.Delete(has, at, at+1)
	}
}

func TestAnAdapterThatAServerHasOfAnEarlierProcessIsLoadedAnew(t *testing.T) {
	d := newDouble(t, "vllm")
	loras(d, "one")
	w := watchIt(t, d, func(o *Options) { o.Adapters = true })
	for _, name := range []string{"one", "two", "one"} { // there, not there, and this process's own
		if err := w.LoadAdapter(context.Background(), engine.Adapter{Name: name, Path: "/adapters/" + name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := d.times("/v1/load_lora_adapter"); n != 3 {
		t.Errorf("%d adapters were loaded, want 3", n)
	}
}

func TestAServerDoesNotServeUntilItHasItsAdaptersBack(t *testing.T) {
	d := newDouble(t, "vllm")
	loras(d)
	w := watchIt(t, d, func(o *Options) { o.Adapters = true })
	if err := w.LoadAdapter(context.Background(), engine.Adapter{Name: "one", Path: "/adapters/one"}); err != nil {
		t.Fatal(err)
	}
	d.stop()
	w.until("it is gone", func(s State) bool { return !s.Loaded })
	d.change(func(d *double) {
		d.paths["/v1/load_lora_adapter"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(http.StatusBadRequest) }
	})
	d.start(d.addr)
	tries := d.times("/v1/load_lora_adapter")
	w.pass("it is tried again and again", func() bool { return d.times("/v1/load_lora_adapter") > tries+3 })
	if s, _ := w.State(); s.Loaded || !strings.Contains(s.Message, `adapter "one"`) {
		t.Errorf("the state is %+v", s)
	}
	d.change(func(d *double) { loras(d) })
	w.until("it serves again", func(s State) bool { return s.Loaded })
}

func TestALoadOfAnAdapterThatNeverAnswersEnds(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths["/v1/unload_lora_adapter"] = func(http.ResponseWriter, *http.Request, map[string]any) {}
	d.paths["/v1/load_lora_adapter"] = func(_ http.ResponseWriter, r *http.Request, _ map[string]any) { d.hang(r) }
	w := watchIt(t, d, func(o *Options) { o.Adapters, o.Warmup = true, time.Minute })
	ended := make(chan error, 1)
	go func() { ended <- w.LoadAdapter(context.Background(), engine.Adapter{Name: "one", Path: "/one"}) }()
	w.pass("the load ends", func() bool {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("it ended well")
			}
			return true
		default:
			return false
		}
	})
}

func TestAnAdapterLeavesWhenItsRequestsHaveEnded(t *testing.T) {
	d := newDouble(t, "sglang")
	loads := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {}
	d.paths["/load_lora_adapter"], d.paths["/unload_lora_adapter"] = loads, loads
	w := watchIt(t, d, func(o *Options) { o.Adapters = true })
	if err := w.LoadAdapter(context.Background(), engine.Adapter{Name: "one", Path: "/one"}); err != nil {
		t.Fatal(err)
	}
	d.neverEnd()
	r := text("a")
	r.Adapter = "one"
	s, err := w.Generate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	before := d.times("/unload_lora_adapter")
	left := make(chan error, 1)
	go func() { left <- w.UnloadAdapter(context.Background(), "one") }()
	wait(t, "new requests for it are refused", func() bool {
		s, err := w.Generate(context.Background(), r)
		if err == nil {
			_ = s.Close()
		}
		return isInvalid(err)
	})
	if d.times("/unload_lora_adapter") != before {
		t.Error("it was unloaded under a request")
	}
	_ = s.Close()
	if err := <-left; err != nil {
		t.Error(err)
	}
}

func TestAFailedUnloadKeepsTheAdapter(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths["/v1/load_lora_adapter"] = func(http.ResponseWriter, *http.Request, map[string]any) {}
	d.paths["/v1/unload_lora_adapter"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(500) }
	w := watchIt(t, d, func(o *Options) { o.Adapters = true })
	a := engine.Adapter{Name: "one", Path: "/one"}
	if err := w.LoadAdapter(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	if err := w.UnloadAdapter(context.Background(), "one"); err == nil || isInvalid(err) {
		t.Errorf("unload gave %v", err)
	}
	r := text("a")
	r.Adapter = "one"
	if _, _, err := run(w, r); err != nil {
		t.Error(err)
	}
}
