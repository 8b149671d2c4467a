// Package metrics holds every metric of the worker, under our names and, for dashboards and autoscalers made for vLLM,
// under vLLM's. Figures that the engine keeps itself are read when somebody asks; the rest is counted as requests go by.
// Label values are the model's name and closed sets, never a request, a user or an error text. It decides nothing.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// Outcome is how a Generate call ended.
type Outcome string

// The outcomes.
const (
	Stop      Outcome = "stop"      // an end-of-turn token or a stop string
	Length    Outcome = "length"    // max_tokens or the context's end
	Cancelled Outcome = "cancelled" // the caller went away
	Refused   Outcome = "refused"   // no work was done
	Invalid   Outcome = "invalid"   // the request can never run here
	Failed    Outcome = "failed"    // the engine failed
)

// Outcomes are all of them.
var Outcomes = []Outcome{Stop, Length, Cancelled, Refused, Invalid, Failed}

// Set is every metric of the worker.
type Set struct {
	registry *prometheus.Registry

	requests   [2]*prometheus.CounterVec // ringfleet_worker_requests_total{outcome}, vllm:request_success_total{finished_reason}
	prompt     [2]prometheus.Counter
	generation [2]prometheus.Counter
	firstToken [2]prometheus.Histogram
	perToken   [2]prometheus.Histogram
	whole      [2]prometheus.Histogram
}

// Buckets in seconds: of waiting for the first token, of a token, and of a request. They begin where a small model on a
// CPU is and end where a client has long gone.
var (
	firstBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120}
	tokenBuckets = []float64{.002, .005, .01, .02, .04, .08, .15, .3, .6, 1.2, 2.5}
	wholeBuckets = []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600}
)

// Source says how things stand when the metrics are read. ok is false while no model is loaded.
type Source func() (stats engine.Stats, ok bool)

// New returns the metrics of a worker of the given model on a machine with so many GPUs.
func New(model string, gpus int, read Source) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	labels := prometheus.Labels{"model_name": model}
	in := prometheus.WrapRegistererWith(labels, s.registry)

	s.requests[0] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringfleet_worker_requests_total",
		Help: "Generate calls by how they ended."}, []string{"outcome"})
	s.requests[1] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total",
		Help: "Finished requests by reason."}, []string{"finished_reason"})
	for _, o := range Outcomes {
		s.requests[0].WithLabelValues(string(o))
	}
	s.requests[1].WithLabelValues(string(Stop))
	s.requests[1].WithLabelValues(string(Length))

	s.prompt = counters("ringfleet_worker_prompt_tokens_total", "vllm:prompt_tokens_total", "Prompt tokens of accepted requests.")
	s.generation = counters("ringfleet_worker_generation_tokens_total", "vllm:generation_tokens_total", "Generated tokens.")
	s.firstToken = histograms("ringfleet_worker_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
		"From a request's arrival to its first token.", firstBuckets)
	s.perToken = histograms("ringfleet_worker_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
		"Time per token after the first.", tokenBuckets)
	s.whole = histograms("ringfleet_worker_request_seconds", "vllm:e2e_request_latency_seconds",
		"From a request's arrival to its end, of requests that finished.", wholeBuckets)
	for i := range 2 {
		in.MustRegister(s.requests[i], s.prompt[i], s.generation[i], s.firstToken[i], s.perToken[i], s.whole[i])
	}
	in.MustRegister(newGauges(gpus, read))
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Gatherer is what /metrics serves.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }

// Accepted counts the prompt of a request that was queued.
func (s *Set) Accepted(promptTokens int) {
	for i := range 2 {
		s.prompt[i].Add(float64(promptTokens))
	}
}

// Generated counts new tokens.
func (s *Set) Generated(tokens int) {
	for i := range 2 {
		s.generation[i].Add(float64(tokens))
	}
}

// FirstToken books how long a request waited for its first token.
func (s *Set) FirstToken(after time.Duration) {
	for i := range 2 {
		s.firstToken[i].Observe(after.Seconds())
	}
}

// Ended books the end of a Generate call. tokens were made in the time since the first of them; whole is the time since
// the call arrived.
func (s *Set) Ended(o Outcome, tokens int, sinceFirst, whole time.Duration) {
	s.requests[0].WithLabelValues(string(o)).Inc()
	if o != Stop && o != Length {
		return
	}
	s.requests[1].WithLabelValues(string(o)).Inc()
	for i := range 2 {
		s.whole[i].Observe(whole.Seconds())
		if tokens > 1 {
			s.perToken[i].Observe(sinceFirst.Seconds() / float64(tokens-1))
		}
	}
}

func counters(ours, theirs, help string) [2]prometheus.Counter {
	return [2]prometheus.Counter{
		prometheus.NewCounter(prometheus.CounterOpts{Name: ours, Help: help}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: theirs, Help: help}),
	}
}

func histograms(ours, theirs, help string, buckets []float64) [2]prometheus.Histogram {
	return [2]prometheus.Histogram{
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: ours, Help: help, Buckets: buckets}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: theirs, Help: help, Buckets: buckets}),
	}
}

// gauges reads the engine's own figures.
type gauges struct {
	read Source
	list []gauge
}

// gauge is one figure; of returns false where it is unknown.
type gauge struct {
	desc *prometheus.Desc
	of   func(s engine.Stats, loaded bool) (float64, bool)
}

func newGauges(gpus int, read Source) *gauges {
	g := &gauges{read: read}
	add := func(name, help string, of func(engine.Stats, bool) (float64, bool)) {
		g.list = append(g.list, gauge{prometheus.NewDesc(name, help, nil, nil), of})
	}
	running := func(s engine.Stats, _ bool) (float64, bool) { return float64(s.Running), true }
	waiting := func(s engine.Stats, _ bool) (float64, bool) { return float64(s.Waiting), true }
	add(telemetry.WorkerModelLoaded, "1 while the model is loaded.", func(_ engine.Stats, loaded bool) (float64, bool) {
		if loaded {
			return 1, true
		}
		return 0, true
	})
	add("ringfleet_worker_gpu_devices", "NVIDIA devices that the worker can see.", func(engine.Stats, bool) (float64, bool) {
		return float64(gpus), true
	})
	add(telemetry.WorkerRequestsRunning, "Requests that hold a sequence.", running)
	add("vllm:num_requests_running", "Requests that hold a sequence.", running)
	add(telemetry.WorkerRequestsWaiting, "Requests that wait for a sequence.", waiting)
	add("vllm:num_requests_waiting", "Requests that wait for a sequence.", waiting)
	add(telemetry.WorkerKVBlocksUsed, "KV-cache blocks that are booked.", func(s engine.Stats, _ bool) (float64, bool) { return figure(s.KVBlocksUsed) })
	add(telemetry.WorkerKVBlocksTotal, "KV-cache blocks.", func(s engine.Stats, _ bool) (float64, bool) { return figure(s.KVBlocksTotal) })
	add("vllm:kv_cache_usage_perc", "Share of the KV-cache blocks that is booked, from 0 to 1.", func(s engine.Stats, _ bool) (float64, bool) {
		if s.KVBlocksUsed == nil || s.KVBlocksTotal == nil || *s.KVBlocksTotal == 0 {
			return 0, false
		}
		return float64(*s.KVBlocksUsed) / float64(*s.KVBlocksTotal), true
	})
	add("ringfleet_worker_prefill_tokens_per_second", "Prompt tokens per second over the last ten seconds of work.",
		func(s engine.Stats, _ bool) (float64, bool) { return figure(s.PrefillPerSecond) })
	add("ringfleet_worker_decode_tokens_per_second", "Generated tokens per second over the last ten seconds of work.",
		func(s engine.Stats, _ bool) (float64, bool) { return figure(s.DecodePerSecond) })
	return g
}

func figure[T int64 | float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

// Describe names the figures.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, x := range g.list {
		out <- x.desc
	}
}

// Collect reads the figures; unknown ones are left out.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	stats, loaded := g.read()
	for _, x := range g.list {
		if v, ok := x.of(stats, loaded); ok {
			out <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, v)
		}
	}
}
