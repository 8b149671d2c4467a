package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine/openai"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

func TestAdapterSourcesThatCantWorkAreRefusedByTheirPlace(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		sources string
		change  func(*Options)
		says    []string // nothing: accepted
	}{
		"none":                     {sources: ""},
		"a file":                   {sources: `[{"name":"a","file":"a.gguf"}]`},
		"sources":                  {sources: `[{"name":"a","uri":"hf://o/m@v1","file":"a.gguf","digest":"` + digest + `"},{"name":"b","uri":"s3://bucket/b"}]`},
		"no JSON":                  {sources: `[{`, says: []string{"--adapter-sources: want a JSON list", "entry"}},
		"no list":                  {sources: `{"name":"a"}`, says: []string{"want a JSON list"}},
		"something behind":         {sources: `[] []`, says: []string{"nothing behind it"}},
		"an unknown field":         {sources: `[{"name":"a","file":"f","path":"x"}]`, says: []string{`unknown field "path"`}},
		"no name":                  {sources: `[{"name":"a","file":"f"},{"file":"f"}]`, says: []string{`entry 1 (""): it has no name`}},
		"one name twice":           {sources: `[{"name":"a","file":"f"},{"name":"b","file":"f"},{"name":"a","file":"g"}]`, says: []string{`entry 2 ("a"): entry 0 has the same name`}},
		"neither uri nor file":     {sources: `[{"name":"a"}]`, says: []string{`entry 0 ("a"): it has neither a uri nor a file`}},
		"a file outside":           {sources: `[{"name":"a","file":"../f"}]`, says: []string{`entry 0 ("a"): file "../f"`}},
		"a digest that is none":    {sources: `[{"name":"a","file":"f","digest":"sha256:x"}]`, says: []string{`entry 0 ("a"): digest "sha256:x"`}},
		"a uri that is none":       {sources: `[{"name":"a","uri":"ftp://x"}]`, says: []string{`entry 0 ("a"): `, "ftp"}},
		"a claim":                  {sources: `[{"name":"a","uri":"pvc://c/a"}]`, says: []string{`entry 0 ("a"): uri pvc://c/a: want one to fetch from`}},
		"several faults":           {sources: `[{"name":"a"},{"name":"a"}]`, says: []string{"entry 0", "entry 1"}},
		"too many":                 {sources: "[" + strings.Repeat(`{"name":"a","file":"f"},`, 64) + `{"name":"b","file":"f"}]`, says: []string{"65 adapters, want at most 64"}},
		"a name of --adapters":     {sources: `[{"name":"a","file":"f"}]`, change: func(o *Options) { o.Steps.Adapters = "a=/x" }, says: []string{`entry 0 ("a"): --adapters has the same name`}},
		"an engine without a link": {sources: `[{"name":"a","uri":"hf://o/m"}]`, change: beside, says: []string{"--adapters-link"}},
		"an engine that loads none": {sources: `[{"name":"a","file":"f"}]`, change: func(o *Options) {
			beside(o)
			o.Server.Adapters = false
		}, says: []string{"--adapter-sources", "--engine-adapters"}},
		"an engine":              {sources: `[{"name":"a","uri":"hf://o/m"}]`, change: func(o *Options) { beside(o); o.Adapters.Link = "/model/adapters" }},
		"fetching nothing":       {sources: `[{"name":"a","file":"f"}]`, change: func(o *Options) { o.FetchOnly = true }, says: []string{"--fetch-only", "an adapter with a uri"}},
		"fetching only adapters": {sources: `[{"name":"a","uri":"hf://o/m"}]`, change: func(o *Options) { o.FetchOnly, o.Adapters.Link = true, "/l" }},
	} {
		o := parse(t, nil, "--model=m", "--namespace=n")
		o.Adapters.Sources = c.sources
		if c.change != nil {
			c.change(&o)
		}
		err := o.Validate()
		if (err != nil) != (len(c.says) > 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q lacks %q", name, err, says)
			}
		}
	}
}

func beside(o *Options) {
	o.Driver, o.Server.Adapters, o.Server.Kind = openAI, true, string(openai.VLLM)
}

// sources writes a list for --adapter-sources.
func sources(t *testing.T, list ...adapterSource) string {
	t.Helper()
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// lora writes an adapter for the matrix blk.0.attn_q.weight of ggufgen.Golden: random, and of its size.
func lora(t *testing.T, path string, seed uint64) {
	t.Helper()
	const width, rank = 256, 4
	var b []byte
	u32 := func(n uint32) { b = binary.LittleEndian.AppendUint32(b, n) }
	u64 := func(n uint64) { b = binary.LittleEndian.AppendUint64(b, n) }
	text := func(s string) { u64(uint64(len(s))); b = append(b, s...) }
	b = append(b, "GGUF"...)
	u32(3)
	u64(2)
	u64(4)
	for _, kv := range [][2]string{{"general.architecture", "llama"}, {"general.type", "adapter"}, {"adapter.type", "lora"}} {
		text(kv[0])
		u32(8)
		text(kv[1])
	}
	text("adapter.lora.alpha")
	u32(6)
	u32(math.Float32bits(8))
	for i, dims := range [][2]uint64{{width, rank}, {rank, width}} {
		text("blk.0.attn_q.weight.lora_" + string(rune('a'+i)))
		u32(2)
		u64(dims[0])
		u64(dims[1])
		u32(0)
		u64(uint64(i) * width * rank * 4)
	}
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2 * width * rank {
		u32(math.Float32bits(float32(r.NormFloat64())))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask returns a greedy text of the model, or of an adapter of it.
func ask(t *testing.T, c workerv1.WorkerClient, adapter string) answer {
	t.Helper()
	zero := 0.0
	stream, err := c.Generate(within(t), &workerv1.GenerateRequest{RequestId: "q", AttemptId: "a", MaxTokens: 24, Adapter: adapter, IgnoreEos: true,
		Sampling: &workerv1.Sampling{Temperature: &zero}, Prompt: &workerv1.GenerateRequest_Text{Text: &workerv1.TextPrompt{Text: "Once upon a time"}}})
	if err != nil {
		t.Fatal(err)
	}
	return collect(stream)
}

func TestAdaptersFromASourceAndBesideTheWeightsAreServedByLlamaCpp(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	golden := ggufgen.Golden()
	if err := golden.WriteFile(filepath.Join(dir, "golden.gguf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	lora(t, filepath.Join(dir, "more", "near.gguf"), 1)
	lora(t, filepath.Join(far, "far.gguf"), 2)
	var o Options
	server := web(t, &o, far)
	t.Setenv("RINGFLEET_TEST_WEIGHTS", filepath.Join(dir, "golden.gguf"))
	t.Setenv("RINGFLEET_WEIGHTS_CA_FILE", o.Fetch.CAFile)
	t.Setenv("RINGFLEET_WEIGHTS_ALLOW_NETWORKS", o.Fetch.AllowNetworks)
	t.Setenv("RINGFLEET_WEIGHTS_CACHE_DIR", o.Fetch.CacheDir)
	t.Setenv("RINGFLEET_CONTEXT_TOKENS", "1024")
	t.Setenv("RINGFLEET_ADAPTER_SOURCES", sources(t, adapterSource{Name: "near", File: "more/near.gguf"}, adapterSource{Name: "far", URI: server.URL + "/far.gguf"}))
	r := startReal(t)
	c := client(t, r.ca, r.grpc)
	r.awaitLoaded(t, c)
	texts := map[string]string{}
	for _, name := range []string{"", "near", "far"} {
		a := ask(t, c, name)
		if a.err != nil || a.text == "" {
			t.Fatalf("adapter %q: %q, %v", name, a.text, a.err)
		}
		if of, twice := texts[a.text]; twice {
			t.Errorf("the adapters %q and %q say the same: %q", of, name, a.text)
		}
		texts[a.text] = name
	}
	if a := ask(t, c, "other"); a.err == nil {
		t.Errorf("an adapter that nobody named says %q", a.text)
	}
}

func TestAnAdapterThatCantBeHadIsSaidOfByItsNameAndTriedAgain(t *testing.T) {
	far := t.TempDir()
	for name, c := range map[string]struct {
		change func(t *testing.T, o *Options, url string)
		reason string
		says   string
	}{
		"no file at the source": {func(t *testing.T, o *Options, url string) {
			o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", URI: url + "/none.gguf"})
		}, fetch.NotFound, "adapter tuned: "},
		"no file beside the weights": {func(t *testing.T, o *Options, _ string) {
			o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: "none.gguf"})
		}, weights.NotFound, "adapter tuned: "},
		"another file than its digest": {func(t *testing.T, o *Options, _ string) {
			o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: "w.gguf", Digest: "sha256:" + strings.Repeat("0", 64)})
		}, weights.DigestMismatch, "adapter tuned: "},
		"a folder for llama.cpp": {func(t *testing.T, o *Options, _ string) {
			if err := os.Mkdir(filepath.Join(o.WeightsDir, "d"), 0o700); err != nil {
				t.Fatal(err)
			}
			o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: "d"})
		}, weights.Unsupported, "adapter tuned: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, device(sim.Options{Text: "x", Adapters: true}), func(o *Options) {
				server := web(t, o, far)
				o.Fetch.URI = ""
				c.change(t, o, server.URL)
			})
			waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
			if now, _ := p.a.state.Status(); now.Reason != c.reason || !strings.HasPrefix(now.Message, c.says) {
				t.Errorf("said %s: %s", now.Reason, now.Message)
			}
		})
	}
}

func TestAdaptersLieBelowTheWeightsRootHoweverDeepTheWeightsFileIs(t *testing.T) {
	p := start(t, device(sim.Options{Text: "x", Adapters: true}), func(o *Options) {
		for _, dir := range []string{"models", "more"} {
			if err := os.Mkdir(filepath.Join(o.WeightsDir, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		writeWeights(t, filepath.Join(o.WeightsDir, "models"))
		lora(t, filepath.Join(o.WeightsDir, "more", "a.gguf"), 1)
		o.WeightsFile = "models/w.gguf"
		o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: "more/a.gguf"})
	})
	waitFor(t, "the load, or why there is none", func() bool {
		now, _ := p.a.state.Status()
		return now.Stage == workerv1.Stage_STAGE_LOADED || now.Stage == workerv1.Stage_STAGE_FAILED
	})
	if now, _ := p.a.state.Status(); now.Stage != workerv1.Stage_STAGE_LOADED {
		t.Errorf("said %s: %s", now.Reason, now.Message)
	}
}

func TestTheRootOfWeightsIsTheFolderThatTheirFilesNameBeginsIn(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ uri, file, path, want string }{
		"mounted":                          {"", "models/w.gguf", "/weights/models/w.gguf", "/weights"},
		"mounted, the only file":           {"", "", "/weights/w.gguf", "/weights"},
		"a claim that is checked in place": {"pvc://claim", "models/w.gguf", "/weights/models/w.gguf", "/weights"},
		"fetched, a file of its own":       {"https://example.com/w.gguf", "", "/cache/models/0a/w.gguf", "/cache/models/0a"},
		"fetched, one file of several":     {"hf://org/m", "models/w.gguf", "/cache/models/0a/w.gguf", "/cache/models/0a"},
		"fetched, the first of its parts":  {"hf://org/m", "x/w-1.gguf", "/cache/models/0a/x/w-1.gguf", "/cache/models/0a"},
		"fetched, a folder":                {"hf://org/m", "", dir, dir},
	} {
		a := agent{o: Options{WeightsDir: "/weights", WeightsFile: c.file}}
		a.o.Fetch.URI = c.uri
		if got := a.root(c.path); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAnAdapterThatComesLaterIsLoaded(t *testing.T) {
	p := start(t, device(sim.Options{Text: "x", Adapters: true}), func(o *Options) {
		o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: "more/a.gguf"})
	})
	waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	dir := filepath.Join(p.a.o.WeightsDir, "more")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lora(t, filepath.Join(dir, "a.gguf"), 1)
	waitFor(t, "the load", func() bool {
		p.clock.Step(recheck)
		return p.stage() == workerv1.Stage_STAGE_LOADED
	})
	if a := ask(t, p.router(), "tuned"); a.err != nil {
		t.Errorf("generate: %v", a.err)
	}
}

// peftFiles are the files of an adapter as vLLM loads it.
func peftFiles() map[string][]byte {
	const head = `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  `
	return map[string][]byte{
		adapterConfig:               []byte(`{"peft_type":"LORA","r":4}`),
		"adapter_model.safetensors": append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), 0, 0, 0, 0),
	}
}

// peft is an adapter's folder as vLLM loads it.
func peft(t *testing.T, dir string) {
	t.Helper()
	for name, b := range peftFiles() {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// loraServer notes what vLLM is told of adapters, and refuses what refuse returns a message for.
type loraServer struct {
	mu     sync.Mutex
	calls  []string
	refuse string
}

func (l *loraServer) paths(mux *http.ServeMux) {
	for _, what := range []string{"load", "unload"} {
		mux.HandleFunc("POST /v1/"+what+"_lora_adapter", func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Name string `json:"lora_name"`
				Path string `json:"lora_path"`
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, strings.TrimSpace(what+" "+body.Name+" "+body.Path))
			if l.refuse != "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"BadRequestError"}}`, l.refuse)
			}
		})
	}
}

func (l *loraServer) loads(entry string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.calls {
		if c == entry {
			n++
		}
	}
	return n
}

func TestAnEngineBesideTheWorkerGetsItsAdaptersBeforeItCountsAsLoadedAndAgainAfterARestart(t *testing.T) {
	address, near := free(t), t.TempDir()
	peft(t, near)
	p := start(t, nil, func(o *Options) {
		beside(o)
		o.Server.URL, o.WeightsDir = "http://"+address, filepath.Dir(near)
		o.Adapters.Sources = sources(t, adapterSource{Name: "tuned", File: filepath.Base(near)})
	})
	step := func(stage workerv1.Stage) func() bool {
		return func() bool {
			p.clock.Step(serverPatience / 100)
			return p.stage() == stage
		}
	}
	l := &loraServer{refuse: "rank 64 is too large"}
	first := chatServer(t, address, l.paths)
	waitFor(t, "the refusal", step(workerv1.Stage_STAGE_FAILED))
	if now, _ := p.a.state.Status(); now.Reason != weights.Unsupported || !strings.Contains(now.Message, "adapter tuned: ") || !strings.Contains(now.Message, "rank 64") {
		t.Errorf("said %s: %s", now.Reason, now.Message)
	}
	l.mu.Lock()
	l.refuse, l.calls = "", nil
	l.mu.Unlock()
	waitFor(t, "the load", step(workerv1.Stage_STAGE_LOADED))
	load := "load tuned " + near
	if l.loads(load) != 1 {
		t.Errorf("the engine was told %q, want %q once", l.calls, load)
	}
	first.CloseClientConnections()
	first.Close()
	waitFor(t, "the loss", step(workerv1.Stage_STAGE_LOADING))
	again := &loraServer{}
	second := chatServer(t, address, again.paths)
	defer second.Close()
	waitFor(t, "the load again", step(workerv1.Stage_STAGE_LOADED))
	if again.loads(load) == 0 {
		t.Errorf("the engine that was started anew was told %q", again.calls)
	}
}

func TestAFetchingContainerLinksAdaptersAndTheNextOneHasTheEngineLoadThem(t *testing.T) {
	hub := &sourcetest.Hub{Files: peftFiles()}
	hub.StartPlain()
	defer hub.Close()
	link, cache := filepath.Join(t.TempDir(), "model", "adapters"), t.TempDir()
	with := func(o *Options) {
		o.Fetch.CacheDir, o.Fetch.AllowNetworks = cache, "127.0.0.0/8"
		o.Fetch.Getenv = func(key string) string { return map[string]string{"HF_ENDPOINT": hub.Hub.URL}[key] }
		o.Adapters.Link = link
		o.Adapters.Sources = sources(t, adapterSource{Name: "first", File: "lies/beside"}, adapterSource{Name: "tuned", URI: "hf://org/m"})
		dir := filepath.Join(o.WeightsDir, "lies", "beside")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		peft(t, dir)
	}
	p := start(t, nil, func(o *Options) {
		with(o)
		o.FetchOnly = true
	})
	if err := p.end(); err != nil {
		t.Fatalf("ended with %v", err)
	}
	if err := p.a.fetcher.Close(); err != nil { // the end of a process lets go of the cache, and this one goes on
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(link, "1", adapterConfig)); err != nil {
		t.Error(err)
	}
	if found, err := os.ReadDir(link); err != nil || len(found) != 1 {
		t.Errorf("the folder of links holds %v: %v", found, err)
	}
	hub.Close() // the next container fetches nothing
	address, l := free(t), &loraServer{}
	s := chatServer(t, address, l.paths)
	defer s.Close()
	next := start(t, nil, func(o *Options) {
		with(o)
		beside(o)
		o.Server.URL = "http://" + address
	})
	waitFor(t, "the load", func() bool {
		next.clock.Step(serverPatience / 100)
		return next.stage() == workerv1.Stage_STAGE_LOADED
	})
	for _, want := range []string{"load first " + filepath.Join(next.a.o.WeightsDir, "lies", "beside"), "load tuned " + filepath.Join(link, "1")} {
		if l.loads(want) != 1 {
			t.Errorf("the engine was told %q, want %q once", l.calls, want)
		}
	}
}

func TestAContainerThatOnlyFetchesLinksTheAdaptersThatHaveASource(t *testing.T) {
	far, link := t.TempDir(), filepath.Join(t.TempDir(), "model", "adapters")
	lora(t, filepath.Join(far, "w.gguf"), 1)
	p := start(t, nil, func(o *Options) {
		server := web(t, o, far)
		o.Fetch.URI, o.FetchOnly, o.Adapters.Link = "", true, link
		o.Adapters.Sources = sources(t, adapterSource{Name: "a", URI: server.URL + "/w.gguf"})
	})
	waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	// A file is no folder: what the engine wants is said before the engine starts.
	if now, _ := p.a.state.Status(); now.Reason != weights.Unsupported || !strings.Contains(now.Message, "adapter a: ") || !strings.Contains(now.Message, adapterConfig) {
		t.Errorf("said %s: %s", now.Reason, now.Message)
	}
	if target, err := os.Readlink(filepath.Join(link, "0")); err != nil || filepath.Base(target) != "w.gguf" {
		t.Errorf("the link leads to %q: %v", target, err)
	}
}
