// Package metrics holds every metric of the worker, under our names and, for dashboards and autoscalers made for vLLM,
// under vLLM's. Figures that the engine keeps itself are read when somebody asks; the rest is counted as requests go by.
// Label values are the model's name and closed sets, never a request, a user or an error text. It decides nothing.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Outcome is how a Generate call ended.
type Outcome string

// The outcomes.
const (
	Stop      Outcome = "stop"       // an end-of-turn token or a stop string
	Length    Outcome = "length"     // max_tokens or the context's end
	ToolCalls Outcome = "tool_calls" // the model calls tools
	Cancelled Outcome = "cancelled"  // the caller went away, or did not read
	Refused   Outcome = "refused"    // no work was done
	Invalid   Outcome = "invalid"    // the request can never run here
	Failed    Outcome = "failed"     // the engine failed
)

// Outcomes are all of them.
var Outcomes = []Outcome{Stop, Length, ToolCalls, Cancelled, Refused, Invalid, Failed}

// finished reports whether o is the end of an answer.
func (o Outcome) finished() bool { return o == Stop || o == Length || o == ToolCalls }

// Set is every metric of the worker.
type Set struct {
	registry *prometheus.Registry
	steps    *Steps

	requests   [2]*prometheus.CounterVec // ringfleet_worker_requests_total{outcome}, vllm:request_success_total{finished_reason}
	prompt     [2]prometheus.Counter
	generation [2]prometheus.Counter
	firstToken [2]prometheus.Histogram
	tokenGap   [2]prometheus.Histogram
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

// New returns the metrics of a worker of the given model.
func New(model string, read Source) *Set {
	s := &Set{registry: prometheus.NewRegistry(), steps: newSteps()}
	in := prometheus.WrapRegistererWith(prometheus.Labels{"model_name": model}, s.registry)

	s.requests[0] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringfleet_worker_requests_total",
		Help: "Generate calls by how they ended."}, []string{"outcome"})
	s.requests[1] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total",
		Help: "Finished requests by reason."}, []string{"finished_reason"})
	for _, o := range Outcomes {
		s.requests[0].WithLabelValues(string(o))
		if o.finished() {
			s.requests[1].WithLabelValues(string(o))
		}
	}
	s.prompt = counters("ringfleet_worker_prompt_tokens_total", "vllm:prompt_tokens_total", "Prompt tokens of accepted requests.")
	s.generation = counters("ringfleet_worker_generation_tokens_total", "vllm:generation_tokens_total", "Generated tokens.")
	s.firstToken = histograms("ringfleet_worker_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
		"From a request's arrival to its first token.", firstBuckets)
	s.tokenGap = histograms("ringfleet_worker_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
		"From one token of a choice to its next.", tokenBuckets)
	s.perToken = histograms("ringfleet_worker_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds",
		"Mean time per token after the first, of requests that finished.", tokenBuckets)
	s.whole = histograms("ringfleet_worker_request_seconds", "vllm:e2e_request_latency_seconds",
		"From a request's arrival to its end, of requests that finished.", wholeBuckets)
	for i := range 2 {
		in.MustRegister(s.requests[i], s.prompt[i], s.generation[i], s.firstToken[i], s.tokenGap[i], s.perToken[i], s.whole[i])
	}
	s.steps.register(in)
	in.MustRegister(newFigures(read))
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Gatherer is what /metrics serves.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }

// Steps are told of each step of a scheduler.
func (s *Set) Steps() *Steps { return s.steps }

// Add makes /metrics serve what c collects too.
func (s *Set) Add(c prometheus.Collector) { s.registry.MustRegister(c) }

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

// NextTokens books so many further tokens of a choice, which came together some time after the one before: each took its
// share of it.
func (s *Set) NextTokens(tokens int, after time.Duration) {
	for range min(tokens, maxTogether) {
		for i := range 2 {
			s.tokenGap[i].Observe(after.Seconds() / float64(tokens))
		}
	}
}

// maxTogether is how many tokens of one chunk are observed one by one.
const maxTogether = 64

// Ended books the end of a Generate call. tokens were made in the time since the first of them; whole is the time since
// the call arrived.
func (s *Set) Ended(o Outcome, tokens int, sinceFirst, whole time.Duration) {
	s.requests[0].WithLabelValues(string(o)).Inc()
	if !o.finished() {
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
	return [2]prometheus.Histogram{histogram(ours, help, buckets), histogram(theirs, help, buckets)}
}

// histogram has the given buckets for everybody, and native ones, a tenth apart, for those who scrape them.
func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour})
}
