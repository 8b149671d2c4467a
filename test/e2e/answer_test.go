//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// canary is a prompt that must not be found anywhere but in the model's context.
const canary = "Zanzibar-7731: what is the capital of France?"

func TestAModelAnswersOverTwoWorkers(t *testing.T) {
	ns := namespace(t, "e2e-answer")
	m := model(t, ns, "tiny", replicas(2), func(m *v1alpha1.InferenceModel) {
		m.Spec.ModelName, m.Spec.Aliases = "org/Tiny-1.0", []string{"tiny-alias"}
	})
	untilReady(t, m)
	url := base(t, ns)

	t.Run("it knows the capital of France, at once and as a stream", func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			for _, name := range []string{"org/Tiny-1.0", "tiny-alias"} {
				o := post(t.Context(), url, question{model: name, prompt: "Tell me the name of the capital of France.", stream: stream, maxTokens: 32}, nil)
				if !o.good() || o.done != stream || !strings.Contains(o.text, "Paris") {
					t.Errorf("stream %t, model %s: %s, text %q", stream, name, o, o.text)
				}
			}
		}
	})
	t.Run("texts that mean alike have vectors that point alike", func(t *testing.T) { embeddings(t, url) })
	t.Run("models are listed and named", func(t *testing.T) { namesOf(t, url) })
	t.Run("bad input is refused before any worker", func(t *testing.T) { badInput(t, m, url) })
	t.Run("a burst of 25 sessions has no error, and by the ring alone one worker per session", func(t *testing.T) { burst(t, m, url) })
	t.Run("the plugin asks, tells and checks", func(t *testing.T) { usePlugin(t, m) })
	t.Run("prompts are in no log, event or status", func(t *testing.T) { secrecy(t, m, url) })
	t.Run("nothing is written while nothing changes", func(t *testing.T) { quiet(t, ns) })
	t.Run("a worker refuses who expects another", func(t *testing.T) { mistaken(t, m) })
}

// embeddings asks for three vectors; the model was not trained for them, but tells a city from a formula.
func embeddings(t *testing.T, url string) {
	const body = `{"model":"org/Tiny-1.0","input":["Paris is a city in France.","Lyon is a city in France.","x = (a + b) * 7 / sqrt(c)"]}`
	resp, err := httpClient.Post(url+"/embeddings", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != 200 || len(a.Data) != 3 {
		t.Fatalf("status %d, %d vectors: %v", resp.StatusCode, len(a.Data), err)
	}
	angle := func(i, j int) float64 {
		x, y := a.Data[i].Embedding, a.Data[j].Embedding
		var dot, xx, yy float64
		for k := range min(len(x), len(y)) {
			dot, xx, yy = dot+x[k]*y[k], xx+x[k]*x[k], yy+y[k]*y[k]
		}
		return dot / math.Sqrt(xx*yy)
	}
	if alike, other := angle(0, 1), angle(0, 2); !(alike > other) {
		t.Errorf("two cities have the cosine %g, a city and a formula %g", alike, other)
	}
}

func namesOf(t *testing.T, url string) {
	for path, want := range map[string]int{
		"/models": 200, "/models/org/Tiny-1.0": 200, "/models/org%2FTiny-1.0": 200, "/models/tiny-alias": 200,
		"/models/nobody": 404, "/nothing": 404, "/chat/completions": 405,
	} {
		resp, err := httpClient.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
		if want != 200 {
			errorOf(t, resp)
		}
		resp.Body.Close()
	}
}

// badInput sends what no worker may see, and reads the workers' own records afterwards.
func badInput(t *testing.T, m *v1alpha1.InferenceModel, url string) {
	before := calls(t, m)
	const ok = `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		param  string
	}{
		"an unknown model":             {`{"model":"org/Tiny-1.O",` + ok + `}`, 404, "model_not_found", "model"},
		"no JSON":                      {`{"model":`, 400, "invalid_json", ""},
		"no messages":                  {`{"model":"org/Tiny-1.0","messages":[]}`, 400, "", "messages"},
		"messages of another type":     {`{"model":"org/Tiny-1.0","messages":"hi"}`, 400, "", "messages"},
		"max_tokens 0":                 {`{"model":"org/Tiny-1.0","max_tokens":0,` + ok + `}`, 400, "", "max_tokens"},
		"a temperature that is a word": {`{"model":"org/Tiny-1.0","temperature":"x",` + ok + `}`, 400, "", "temperature"},
		"a body of eleven MiB":         {`{"model":"org/Tiny-1.0","messages":[{"role":"user","content":"` + strings.Repeat("x", 11<<20) + `"}]}`, 413, "request_too_large", ""},
	} {
		status, e := refused(t, url, c.body)
		if status != c.status || c.code != "" && e.Code != c.code || c.param != "" && (e.Param == nil || *e.Param != c.param) {
			t.Errorf("%s: got %d %+v", name, status, e)
		}
		if name == "an unknown model" && !strings.Contains(e.Message, "org/Tiny-1.0") {
			t.Errorf("%s: the message names no close id: %s", name, e.Message)
		}
	}
	if after := calls(t, m); after != before {
		t.Errorf("workers record %d generate calls, %d before the bad input", after, before)
	}
}

// calls counts the generate calls in the records of a model's workers.
func calls(t *testing.T, m *v1alpha1.InferenceModel) int {
	t.Helper()
	n := 0
	for _, p := range workers(t, m) {
		n += strings.Count(logs(t, m.Namespace, p.Name), "A generate call ended")
	}
	return n
}

// slowStart is how long routers give a worker few requests after it came into their ring, and a second for what the
// condition's time leaves out.
const slowStart = 11 * time.Second

// burst is 50 simultaneous requests of 25 sessions, half of them streaming, and a third turn of each session: by default, and
// once more with the policy that keeps sessions together whatever the load is.
func burst(t *testing.T, m *v1alpha1.InferenceModel, url string) {
	sessions(t, url, "default")
	var router v1alpha1.InferenceRouter
	key := client.ObjectKey{Namespace: m.Namespace, Name: v1alpha1.DefaultName}
	if err := api.Get(t.Context(), key, &router); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"placement":{"policy":"ConsistentHash"},"ring":{"maxLoadPercent":1000}}}`))
	if err := api.Patch(t.Context(), &router, patch); err != nil {
		t.Fatal(err)
	}
	defer func() {
		back := client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"placement":{"policy":"LeastPredictedTTFT"},"ring":{"maxLoadPercent":125}}}`))
		if err := api.Patch(t.Context(), &router, back); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "all routers place by the ring", func(ctx context.Context) (bool, string, error) {
		for range 8 { // each on a connection of its own, which may lead to either router
			o := post(ctx, url, question{model: "org/Tiny-1.0", prompt: "Say a word.", maxTokens: 1, fresh: true}, nil)
			if !o.good() || !strings.HasPrefix(o.reason, "ConsistentHash;") {
				return false, o.reason + " " + o.String(), nil
			}
		}
		return true, "", nil
	})
	eventually(t, "no worker is new any more", func(context.Context) (bool, string, error) {
		young := time.Now().Add(-slowStart)
		for _, p := range workers(t, m) {
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.GateInRing && c.LastTransitionTime.After(young) {
					return false, p.Name + " is in the ring since " + c.LastTransitionTime.String(), nil
				}
			}
		}
		return true, "", nil
	})
	for name, reasons := range sessions(t, url, "kept") {
		if len(reasons) != 1 {
			t.Errorf("%s was answered by %d workers: %q", name, len(reasons), reasons)
		}
	}
}

// sessions asks three turns of 25 sessions, and returns which workers answered each, with the reasons for the first time.
func sessions(t *testing.T, url, kind string) map[string]map[string]string {
	const count = 25
	var mu sync.Mutex
	owners, used := map[string]map[string]string{}, map[string]bool{}
	turn := func(session, n int) {
		q := question{model: "org/Tiny-1.0", prompt: fmt.Sprintf("Say a word that begins with %c.", 'a'+session),
			session: fmt.Sprint(kind, "-", session), stream: (session+n)%2 == 0, maxTokens: 16}
		o := post(t.Context(), url, q, nil)
		if !o.good() {
			t.Errorf("session %s turn %d: %s", q.session, n, o)
		}
		mu.Lock()
		defer mu.Unlock()
		if owners[q.session] == nil {
			owners[q.session] = map[string]string{}
		}
		if owners[q.session][o.worker] == "" {
			owners[q.session][o.worker] = o.reason
		}
		used[o.worker] = true
	}
	var wg sync.WaitGroup
	for s := range count {
		wg.Go(func() { turn(s, 0) })
		wg.Go(func() { turn(s, 1) })
	}
	wg.Wait()
	for s := range count {
		wg.Go(func() { turn(s, 2) })
	}
	wg.Wait()
	if len(used) < 2 {
		t.Errorf("%d workers answered %d sessions", len(used), count)
	}
	return owners
}

func secrecy(t *testing.T, m *v1alpha1.InferenceModel, url string) {
	for _, stream := range []bool{false, true} {
		if o := post(t.Context(), url, question{model: "org/Tiny-1.0", prompt: canary, stream: stream, maxTokens: 8}, nil); !o.good() {
			t.Errorf("the canary was not answered: %s", o)
		}
	}
	refused(t, url, `{"model":"org/Tiny-1.0","messages":[{"role":"user","content":"`+canary+`"}],"temperature":9}`)
	for where, text := range everythingWritten(t, m.Namespace) {
		if strings.Contains(text, "Zanzibar") {
			t.Errorf("a prompt stands in %s", where)
		}
	}
}

func TestNoWorkerGeneratesBeforeItHasLoadedTheModel(t *testing.T) {
	ns := namespace(t, "e2e-early")
	m := model(t, ns, "early")
	url := base(t, ns)
	eventually(t, "a request that was sent from the first moment on is answered", func(ctx context.Context) (bool, string, error) {
		o := post(ctx, url, question{model: "early", prompt: "Hi", maxTokens: 4}, nil)
		switch o.status {
		case http.StatusOK, http.StatusServiceUnavailable, http.StatusNotFound:
			return o.good(), o.String(), nil
		default:
			return false, o.String(), fmt.Errorf("status %d", o.status)
		}
	})
	for _, p := range workers(t, m) {
		text := logs(t, ns, p.Name)
		loaded, call := strings.Index(text, "The model is loaded"), strings.Index(text, "A generate call ended")
		if loaded < 0 || call < loaded {
			t.Errorf("worker %s records a generate call at byte %d and the loaded model at byte %d", p.Name, call, loaded)
		}
	}
}
