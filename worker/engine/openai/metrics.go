package openai

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxMetrics bounds a page of metrics.
const maxMetrics = 16 << 20

// figures are what a server's metrics say. Nil is what they don't.
type figures struct {
	running, waiting *float64
	kvUsage          *float64 // of the blocks, 0 to 1
	kvTokensUsed     *float64
	kvTokensTotal    *float64
	kvBlocks         *float64
	kvBlockTokens    *float64

	prompt, generated      *float64 // tokens since the start
	queries, hits, preempt *float64 // prompt tokens looked up and found, and requests preempted, since the start
	prefilled              *float64 // prompt tokens computed since the start, and the seconds that it took
	prefillSeconds         *float64
	started                *float64 // Unix time
}

// work is a number that grows with all that a server does, or nil.
func (f *figures) work() *float64 {
	if f.prompt == nil && f.generated == nil {
		return nil
	}
	sum := 0.0
	for _, v := range []*float64{f.prompt, f.generated} {
		if v != nil {
			sum += *v
		}
	}
	return &sum
}

// The names under which servers export a figure: vLLM, also its older ones, SGLang, llama-server, TensorRT-LLM.
var (
	runningNames  = []string{"vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "trtllm_num_requests_running"}
	waitingNames  = []string{"vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "trtllm_num_requests_waiting"}
	kvUsageNames  = []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization"}
	kvUsedNames   = []string{"sglang:num_used_tokens", "sglang:kv_used_tokens"}
	kvTotalNames  = []string{"sglang:max_total_num_tokens"}
	promptNames   = []string{"vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"}
	outputNames   = []string{"vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"}
	queryNames    = []string{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total"}
	hitNames      = []string{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total"}
	preemptNames  = []string{"vllm:num_preemptions_total", "sglang:num_retracted_requests_total"}
	secondsNames  = []string{"vllm:request_prefill_time_seconds", "llamacpp:prompt_seconds_total"}
	computedNames = []string{"vllm:request_prefill_kv_computed_tokens", "llamacpp:prompt_tokens_total"}
	startNames    = []string{"process_start_time_seconds"}
	configNames   = []string{"vllm:cache_config_info", "sglang:cache_config_info"}
	blockLabels   = []string{"num_gpu_blocks", "num_pages"}
	tokenLabels   = []string{"block_size", "page_size"}
)

// families are metrics by name.
type families map[string]*dto.MetricFamily

// parseMetrics reads a page in Prometheus' text format.
func parseMetrics(r io.Reader) (figures, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(io.LimitReader(r, maxMetrics))
	if err != nil {
		return figures{}, errGarbage
	}
	f := families(m)
	out := figures{
		running: f.sum(runningNames), waiting: f.sum(waitingNames), kvUsage: f.mean(kvUsageNames),
		kvTokensUsed: f.sum(kvUsedNames), kvTokensTotal: f.sum(kvTotalNames),
		kvBlocks: f.labels(configNames, blockLabels, true), kvBlockTokens: f.labels(configNames, tokenLabels, false),
		prompt: f.sum(promptNames), generated: f.sum(outputNames),
		queries: f.sum(queryNames), hits: f.sum(hitNames), preempt: f.sum(preemptNames),
		prefilled: f.sum(computedNames), prefillSeconds: f.sum(secondsNames), started: f.sum(startNames),
	}
	if out.kvUsage != nil && *out.kvUsage > 1 {
		out.kvUsage = nil
	}
	return out, nil
}

// mostCounted is a number that no counter of a server reaches, and to which all whole ones are exact.
const mostCounted = 1 << 53

// sum adds up the series of the first name that has any. The sum of a histogram is the sum of what was observed.
func (f families) sum(names []string) *float64 {
	values := f.values(names)
	if len(values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if sum > mostCounted {
		return nil
	}
	return &sum
}

func (f families) mean(names []string) *float64 {
	sum := f.sum(names)
	if sum != nil {
		*sum /= float64(len(f.values(names)))
	}
	return sum
}

// values returns the series of the first name that has any, or none where one of them is no sound number.
func (f families) values(names []string) []float64 {
	for _, name := range names {
		var out []float64
		for _, m := range f[name].GetMetric() {
			v := valueOf(m)
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return nil
			}
			out = append(out, v)
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	case m.Histogram != nil:
		return m.Histogram.GetSampleSum()
	case m.Summary != nil:
		return m.Summary.GetSampleSum()
	}
	return math.NaN()
}

// labels reads a number out of the labels of an information metric: the sum over its series, or the first one's.
func (f families) labels(names, labels []string, add bool) *float64 {
	var out *float64
	for _, name := range names {
		for _, m := range f[name].GetMetric() {
			v := labelOf(m, labels)
			switch {
			case v == nil, out != nil && !add:
			case out == nil:
				out = v
			default:
				*out += *v
			}
		}
	}
	return out
}

func labelOf(m *dto.Metric, labels []string) *float64 {
	for _, want := range labels {
		for _, l := range m.GetLabel() {
			if n, err := strconv.ParseFloat(l.GetValue(), 64); l.GetName() == want && err == nil && n > 0 && n <= math.MaxInt32 {
				return &n
			}
		}
	}
	return nil
}

// scrape reads the server's metrics. Without any everything is unknown.
func (d *Driver) scrape(ctx context.Context) (figures, error) {
	r, err := d.client.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return figures{}, err
	}
	defer drop(r)
	if r.StatusCode != http.StatusOK {
		return figures{}, fmt.Errorf("it answered %d", r.StatusCode)
	}
	return parseMetrics(r.Body)
}
