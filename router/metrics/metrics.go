// Package metrics holds every metric of the router in one set. It decides nothing and reads nothing. A label is a model
// that exists, or a word from a closed set; never what a client made up.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

// Set is the router's metrics. Times are in seconds.
type Set struct {
	// Registry gathers the set, and the process's own figures.
	Registry *prometheus.Registry

	Requests        *prometheus.CounterVec   // …_requests_total{model,outcome}
	InFlight        *prometheus.GaugeVec     // …_requests_in_flight{model}
	Duration        *prometheus.HistogramVec // …_request_duration_seconds{model}
	FirstToken      *prometheus.HistogramVec // …_time_to_first_token_seconds{model}
	BetweenTokens   *prometheus.HistogramVec // …_inter_token_latency_seconds{model}
	PromptTokens    *prometheus.CounterVec   // …_prompt_tokens_total{model}
	CachedTokens    *prometheus.CounterVec   // …_cached_prompt_tokens_total{model}
	AnswerTokens    *prometheus.CounterVec   // …_completion_tokens_total{model}
	Retries         *prometheus.CounterVec   // …_retries_total{model}
	Resumes         *prometheus.CounterVec   // …_resumes_total{model}
	Forgotten       *prometheus.CounterVec   // …_answers_forgotten_total{model}
	Kept            prometheus.Gauge         // …_answers_kept_bytes
	Resting         prometheus.Gauge         // …_worker_streams_resting
	Ejections       *prometheus.CounterVec   // …_ejections_total{model}
	Ejected         *prometheus.GaugeVec     // …_workers_ejected{model}
	Anomalies       *prometheus.CounterVec   // …_anomalies_total{model,signal}
	Anomalous       *prometheus.GaugeVec     // …_workers_anomalous{model}
	QueueWait       *prometheus.HistogramVec // …_queue_wait_seconds{model}
	Queued          *prometheus.GaugeVec     // …_requests_queued{model}
	Held            *prometheus.GaugeVec     // …_requests_held{model}
	Band            *prometheus.GaugeVec     // …_admission_band{model}
	ExpectedCached  *prometheus.CounterVec   // …_expected_cached_prompt_tokens_total{model}
	RingVersion     *prometheus.GaugeVec     // …_ring_version{model}
	RingMembers     *prometheus.GaugeVec     // …_ring_members{model}
	Candidates      *prometheus.GaugeVec     // …_ring_candidates{model}
	Synced          prometheus.Gauge         // …_synced
	modelCollectors []interface {
		DeletePartialMatch(prometheus.Labels) int
	}

	mu     sync.Mutex // guards the rest, and keeps figures from coming while they are dropped
	models map[string]*model
}

const prefix = "ringfleet_router_"

// New returns a set of zeros in a registry of its own.
func New() *Set {
	s := &Set{Registry: prometheus.NewRegistry(), models: map[string]*model{}}
	s.Requests = s.counter(telemetry.RouterRequests, "Requests for chats and embeddings that ended, by outcome.", "model", "outcome")
	s.InFlight = s.gauge(prefix+"requests_in_flight", "Requests for chats and embeddings now, waiting or streaming.", "model")
	s.Duration = s.histogram(prefix+"request_duration_seconds", "From a request's arrival to its end.",
		[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640})
	s.FirstToken = s.histogram(telemetry.RouterTTFT, "From a request's arrival to its first text.",
		[]float64{.01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160})
	s.BetweenTokens = s.histogram(prefix+"inter_token_latency_seconds", "From one text to the next.",
		[]float64{.005, .01, .015, .02, .03, .04, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5})
	s.PromptTokens = s.counter(prefix+"prompt_tokens_total", "Tokens of prompts that workers took.", "model")
	s.CachedTokens = s.counter(prefix+"cached_prompt_tokens_total", "Those of them that were not computed again.", "model")
	s.AnswerTokens = s.counter(prefix+"completion_tokens_total", "Tokens of answers.", "model")
	s.Retries = s.counter(prefix+"retries_total", "Calls that were made again on another worker.", "model")
	s.Resumes = s.counter(prefix+"resumes_total", "Answers that went on at another worker.", "model")
	s.Forgotten = s.counter(prefix+"answers_forgotten_total",
		"Answers that can't go on at another worker any more, as too much is kept for that of all answers together.", "model")
	s.Ejections = s.counter(prefix+"ejections_total", "Times that a worker was passed over for a while, as too much failed there.", "model")
	s.Ejected = s.gauge(prefix+"workers_ejected", "Workers that are passed over now.", "model")
	s.Anomalies = s.counter(prefix+"anomalies_total", "Times that a worker began to be far from what it was or from the others, by signal.", "model", "signal")
	s.Anomalous = s.gauge(prefix+"workers_anomalous", "Workers that are far from what they were or from the others.", "model")
	s.QueueWait = s.histogram(prefix+"queue_wait_seconds", "From a request's admission to a worker for it.",
		[]float64{.0001, .001, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640})
	s.Queued = s.gauge(prefix+"requests_queued", "Requests that wait for room.", "model")
	s.Held = s.gauge(prefix+"requests_held", "Requests that wait for any worker.", "model")
	s.Band = s.gauge(prefix+"admission_band", "How full the model is: 0 Open, 1 Watch, 2 ScaleOut, 3 Admit, 4 Full.", "model")
	s.ExpectedCached = s.counter(prefix+"expected_cached_prompt_tokens_total",
		"Tokens of prompts that the chosen workers were thought to have cached; cached_prompt_tokens_total is what they had.", "model")
	s.RingVersion = s.gauge(prefix+"ring_version", "The upper 48 bits of the ring's version: equal on routers with equal rings.", "model")
	s.RingMembers = s.gauge(prefix+"ring_members", "Workers that requests may be placed on.", "model")
	s.Candidates = s.gauge(prefix+"ring_candidates", "Workers that the API server names.", "model")
	s.Synced = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "synced",
		Help: "1 after the first full sync with the API server."})
	s.Kept = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "answers_kept_bytes",
		Help: "What is kept of answers under way so that they can go on at another worker."})
	s.Resting = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "worker_streams_resting",
		Help: "Streams to workers that wait for their next request."})
	s.Registry.MustRegister(s.Synced, s.Kept, s.Resting, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Keep drops every figure of models that are not in names, and takes those of the ones that are. Requests to others, and those
// that still run when their model goes, are not counted: that would bring the figures back.
func (s *Set) Keep(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.models {
		if names[name] {
			continue
		}
		m.gone = true
		delete(s.models, name)
		for _, c := range s.modelCollectors {
			c.DeletePartialMatch(prometheus.Labels{"model": name})
		}
	}
	for name := range names {
		if s.models[name] == nil {
			s.models[name] = &model{outcomes: map[string]prometheus.Counter{}}
		}
	}
}

// model is what a model's figures are for, and those that each request needs: to find them by name takes several times as
// long as to count. A model that comes back under its name is another one. Set.mu guards it.
type model struct {
	gone bool

	inFlight                   prometheus.Gauge
	duration, first, between   prometheus.Observer
	queueWait                  prometheus.Observer
	prompt, cached, completion prometheus.Counter
	expected                   prometheus.Counter
	outcomes                   map[string]prometheus.Counter
}

// counted returns the one of that name, with its figures, or nil where Keep has not named it. The caller holds the lock.
func (s *Set) counted(name string) *model {
	m := s.models[name]
	if m != nil && m.inFlight == nil {
		m.inFlight, m.duration = s.InFlight.WithLabelValues(name), s.Duration.WithLabelValues(name)
		m.first, m.between = s.FirstToken.WithLabelValues(name), s.BetweenTokens.WithLabelValues(name)
		m.prompt, m.cached = s.PromptTokens.WithLabelValues(name), s.CachedTokens.WithLabelValues(name)
		m.completion = s.AnswerTokens.WithLabelValues(name)
		m.queueWait, m.expected = s.QueueWait.WithLabelValues(name), s.ExpectedCached.WithLabelValues(name)
	}
	return m
}

// Entered counts that a request of a model that exists got its worker after so long, which is thought to have so many tokens
// of its prompt cached.
func (s *Set) Entered(name string, waited time.Duration, cached float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.counted(name); m != nil {
		m.queueWait.Observe(waited.Seconds())
		m.expected.Add(cached)
	}
}

// Request is the figures of one request.
type Request struct {
	set   *Set
	name  string
	model *model // nil where nothing is counted
}

// Begin counts a request to a model that exists, or to the word for those that don't, where Keep has named it: between the
// end of a model's figures and that of its name in requests there may be some.
func (s *Set) Begin(model string) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Request{set: s, name: model, model: s.counted(model)}
	if r.model != nil {
		r.model.inFlight.Inc()
	}
	return r
}

// FirstToken takes the time to the first text.
func (r *Request) FirstToken(d time.Duration) {
	if r.model != nil {
		r.model.first.Observe(d.Seconds())
	}
}

// NextToken takes the time from one text to the next.
func (r *Request) NextToken(d time.Duration) {
	if r.model != nil {
		r.model.between.Observe(d.Seconds())
	}
}

// End counts the request's end. The outcome is a word of a closed set; the last three are tokens.
func (r *Request) End(outcome string, took time.Duration, prompt, cached, answer uint32) {
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.model == nil || r.model.gone {
		return
	}
	m := r.model
	m.inFlight.Dec()
	if m.outcomes[outcome] == nil {
		m.outcomes[outcome] = s.Requests.WithLabelValues(r.name, outcome)
	}
	m.outcomes[outcome].Inc()
	m.duration.Observe(took.Seconds())
	m.prompt.Add(float64(prompt))
	m.cached.Add(float64(cached))
	m.completion.Add(float64(answer))
}

func (s *Set) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.add(v, v)
	return v
}

func (s *Set) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.add(v, v)
	return v
}

func (s *Set) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"model"})
	s.add(v, v)
	return v
}

// add registers a metric, all of whose series carry the model.
func (s *Set) add(c prometheus.Collector, d interface {
	DeletePartialMatch(prometheus.Labels) int
}) {
	s.Registry.MustRegister(c)
	s.modelCollectors = append(s.modelCollectors, d)
}
