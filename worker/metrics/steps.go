package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// Steps holds what a scheduler tells of its steps and requests. It is a scheduler.Observer.
type Steps struct {
	took      prometheus.Histogram
	sampling  prometheus.Histogram
	sequences prometheus.Histogram
	tokens    *prometheus.HistogramVec // by kind: prefill, decode
	prefill   prometheus.Observer
	decode    prometheus.Observer
	aborted   prometheus.Counter
	queue     [2]prometheus.Histogram
}

// Buckets of steps: seconds, and tokens or sequences.
var (
	stepBuckets  = []float64{.001, .0025, .005, .01, .02, .04, .08, .15, .3, .6, 1.2, 2.5, 5}
	queueBuckets = []float64{.001, .005, .02, .05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300}
	countBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
)

func newSteps() *Steps {
	s := &Steps{
		took:      histogram("ringfleet_worker_step_seconds", "Time of a forward pass with the choice of its tokens.", stepBuckets),
		sampling:  histogram("ringfleet_worker_step_sampling_seconds", "Time in which a step's tokens were chosen.", []float64{.0001, .0005, .001, .0025, .005, .01, .05}),
		sequences: histogram("ringfleet_worker_step_sequences", "Sequences of a step.", countBuckets),
		tokens: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ringfleet_worker_step_tokens",
			Help: "Tokens of a step that were computed for prompts and for streams.", Buckets: countBuckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour}, []string{"kind"}),
		aborted: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringfleet_worker_steps_aborted_total",
			Help: "Steps that were broken off because a request in them was cancelled."}),
		queue: histograms("ringfleet_worker_queue_seconds", "vllm:request_queue_time_seconds",
			"From a request's arrival to its first step.", queueBuckets),
	}
	s.prefill, s.decode = s.tokens.WithLabelValues("prefill"), s.tokens.WithLabelValues("decode")
	return s
}

func (s *Steps) register(in prometheus.Registerer) {
	in.MustRegister(s.took, s.sampling, s.sequences, s.tokens, s.aborted, s.queue[0], s.queue[1])
}

// Stepped is scheduler.Observer's.
func (s *Steps) Stepped(r *scheduler.StepRecord) {
	if r.Aborted {
		s.aborted.Inc()
		return
	}
	s.took.Observe(r.Took.Seconds())
	s.sampling.Observe(r.Sampling.Seconds())
	s.sequences.Observe(float64(r.Sequences))
	if r.Prefill > 0 {
		s.prefill.Observe(float64(r.Prefill))
	}
	if r.Decode > 0 {
		s.decode.Observe(float64(r.Decode))
	}
}

// Ended is scheduler.Observer's.
func (s *Steps) Ended(r *scheduler.RequestRecord) {
	if r.Queue < 0 {
		return
	}
	for i := range 2 {
		s.queue[i].Observe(r.Queue.Seconds())
	}
}
