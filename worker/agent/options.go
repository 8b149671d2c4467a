package agent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
)

// The drivers.
const (
	llamaCpp = "llamacpp"
	openAI   = "openai"
)

// Options are the settings of a worker. Each is a flag and an environment variable: --max-waiting is
// RINGFLEET_MAX_WAITING. The flag wins.
type Options struct {
	// Version of the program: it is logged.
	Version string
	// Model is the name that clients ask for; ModelUID and Revision are the InferenceModel and the revision of it that
	// this process was made for. Calls that expect others are refused.
	Model, ModelUID, Revision string
	// Driver is what runs the model: llamacpp in this process, or openai, a server beside it.
	Driver string
	// WeightsDir is the folder of the weights, and WeightsFile the file in it; empty means the only *.gguf there.
	WeightsDir, WeightsFile string
	// WeightsDigest is what the file must hash to, as sha256: and 64 hexadecimal digits. Empty checks nothing; checking
	// reads the whole file at every start.
	WeightsDigest string
	// ContextTokens is the size of the KV cache in tokens, shared by all sequences, and the most that one may use.
	ContextTokens int
	// MaxSequences is the most requests that run together.
	MaxSequences int
	// KVCacheType is F16 or Q8, which takes half the memory and costs some precision.
	KVCacheType string
	// Threads compute. 0 takes the CPU limit less one, at least one. More threads than free cores make everything many
	// times slower, because idle ones spin.
	Threads int
	// LibraryDir holds libllama and its devices.
	LibraryDir string
	// GRPCAddress serves the worker contract over mutual TLS, HTTPAddress probes, people and metrics in plain HTTP.
	GRPCAddress, HTTPAddress string
	// TLSDir holds tls.crt, tls.key and ca.crt; they are read again when they change.
	TLSDir string
	// Namespace is the one whose routers may call, and that the manager speaks for.
	Namespace string
	// RingWeightPercent is how much of the routers' rings is this worker's, in per cent of what it would be among equals: a
	// stronger machine takes more prefixes.
	RingWeightPercent int
	// PodName and PodUID are reported, so that others can tell which pod this is.
	PodName, PodUID string
	// DrainTimeout is how long running requests may take to finish after SIGTERM. The pod's grace must be longer.
	DrainTimeout time.Duration
	// MaxWaiting is the most requests that wait for a sequence; one more is refused.
	MaxWaiting int
	// Fetch says where the weights come from when they don't lie in WeightsDir. FetchOnly ends the process once they are
	// there: an init container fetches for the engine's own container.
	Fetch     fetch.Options
	FetchOnly bool
	Steps     StepOptions
	Adapters  AdapterOptions
	GPU       GPUOptions
	Server    ServerOptions

	// CPULimit is the container's limit in whole cores, rounded up; 0 is unknown. It comes from CPU_LIMIT only.
	CPULimit int
	bad      []error // variables that could not be read
}

// Bind adds the flags to f. Defaults come from the environment.
func (o *Options) Bind(f *flag.FlagSet) {
	o.bind(f, os.Getenv)
}

func (o *Options) bind(f *flag.FlagSet, getenv func(string) string) {
	b := &binder{f: f, getenv: getenv}
	text, number, duration, truth := b.text, b.integer, b.duration, b.truth
	text(&o.Model, "model", "", "name of the model as clients ask for it")
	text(&o.ModelUID, "model-uid", "", "UID of the InferenceModel")
	text(&o.Revision, "revision", "", "revision of the InferenceModel")
	text(&o.Driver, "driver", llamaCpp, "what runs the model: llamacpp, or openai for a server beside this process")
	text(&o.WeightsDir, "weights-dir", "/weights", "folder of the weights")
	text(&o.WeightsFile, "weights-file", "", "file of the weights in that folder (default: the only *.gguf)")
	text(&o.WeightsDigest, "weights-digest", "", "sha256:… that the file must have")
	number(&o.ContextTokens, "context-tokens", 8192, "tokens in the KV cache, shared by all sequences")
	number(&o.MaxSequences, "max-sequences", 16, "requests that run together")
	text(&o.KVCacheType, "kv-cache-type", "F16", "precision of the KV cache: F16 or Q8")
	number(&o.Threads, "threads", 0, "threads that compute (0: the CPU limit less one)")
	text(&o.LibraryDir, "library-dir", "/lib/llama", "folder of libllama")
	text(&o.GRPCAddress, "grpc-address", ":9443", "address of the worker contract")
	text(&o.HTTPAddress, "http-address", ":8080", "address of /health, /livez, /readyz and /metrics")
	text(&o.TLSDir, "tls-dir", "/etc/ringfleet/tls", "folder of tls.crt, tls.key and ca.crt")
	text(&o.Namespace, "namespace", "", "namespace whose routers and manager may call", "POD_NAMESPACE")
	text(&o.PodName, "pod-name", "", "name of this pod", "POD_NAME")
	text(&o.PodUID, "pod-uid", "", "UID of this pod", "POD_UID")
	number(&o.RingWeightPercent, "ring-weight-percent", 100, "share of the routers' rings, in per cent of an equal worker's")
	number(&o.MaxWaiting, "max-waiting", 512, "requests that wait for a sequence")
	duration(&o.DrainTimeout, "drain-timeout", 10*time.Minute, "time for running requests to finish after SIGTERM")
	truth(&o.FetchOnly, "fetch-only", "end once the weights are there")
	o.CPULimit = b.number("CPU_LIMIT", 0)
	o.Steps.bind(b)
	o.Adapters.bind(b)
	o.GPU.bind(b)
	o.Server.bind(b)
	o.Fetch.Getenv = getenv
	o.Fetch.Bind(f)
	o.bad = b.bad
}

// Validate returns every setting that can't work, by its flag and value.
func (o *Options) Validate() error {
	errs := append([]error(nil), o.bad...)
	bad := func(flag string, value any, want string) {
		errs = append(errs, fmt.Errorf("--%s %v: want %s", flag, value, want))
	}
	for _, s := range []struct{ flag, value string }{
		{"model", o.Model}, {"namespace", o.Namespace}, {"weights-dir", o.WeightsDir}, {"library-dir", o.LibraryDir},
		{"tls-dir", o.TLSDir}, {"grpc-address", o.GRPCAddress}, {"http-address", o.HTTPAddress},
	} {
		if s.value == "" {
			bad(s.flag, `""`, "a value")
		}
	}
	if o.Driver != llamaCpp && o.Driver != openAI {
		bad("driver", o.Driver, "llamacpp or openai")
	}
	if o.KVCacheType != string(llamacpp.F16) && o.KVCacheType != string(llamacpp.Q8) {
		bad("kv-cache-type", o.KVCacheType, "F16 or Q8")
	}
	o.validateNumbers(bad)
	if o.CPULimit < 0 {
		errs = append(errs, fmt.Errorf("CPU_LIMIT %d: want 0 or more", o.CPULimit))
	}
	if list, err := o.Adapters.list(); o.FetchOnly && o.Fetch.URI == "" && err == nil && !fetches(list) {
		bad("fetch-only", true, "a --weights-uri, or an adapter with a uri in --adapter-sources")
	}
	o.Steps.validate(bad)
	errs = append(errs, o.Adapters.validate(o, bad), o.GPU.validate(), o.Fetch.Validate())
	if o.Driver == openAI {
		o.Server.validate(bad)
		if o.Steps.Adapters != "" {
			bad("adapters", o.Steps.Adapters, "--driver llamacpp: the server beside this process is told of its own")
		}
	}
	return errors.Join(errs...)
}

// validateNumbers holds numbers and times to their bounds.
func (o *Options) validateNumbers(bad func(flag string, value any, want string)) {
	for _, n := range []struct {
		flag               string
		value, least, most int
	}{
		{"context-tokens", o.ContextTokens, 256, 4 << 20},
		{"max-sequences", o.MaxSequences, 1, 128},
		{"threads", o.Threads, 0, 1024},
		{"max-waiting", o.MaxWaiting, 1, 100_000},
		{"ring-weight-percent", o.RingWeightPercent, 1, 1000},
	} {
		if n.value < n.least || n.value > n.most {
			bad(n.flag, n.value, fmt.Sprintf("%d to %d", n.least, n.most))
		}
	}
	if o.DrainTimeout < 0 {
		bad("drain-timeout", o.DrainTimeout, "0s or more")
	}
	if o.Server.Stall < stallLook {
		bad("engine-stall", o.Server.Stall, fmt.Sprintf("%s or more", stallLook))
	}
}

// threads returns how many threads compute.
func (o *Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	limit := o.CPULimit
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0)
	}
	return max(limit-1, 1)
}
