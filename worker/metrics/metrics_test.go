package metrics

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// values returns every sample of our families, by name and labels; a histogram by its count and sum.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				out[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[key] = m.Gauge.GetValue()
			case m.Histogram != nil:
				out[key+" count"], out[key+" sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
			}
		}
	}
	return out
}

func TestARequestIsCountedUnderBothNames(t *testing.T) {
	s := New("org/m", func() Now { return Now{} })
	s.Accepted(7)
	s.FirstToken(200 * time.Millisecond)
	s.NextTokens(2, time.Second)
	s.Generated(5)
	s.Ended(Stop, 5, 2*time.Second, 3*time.Second)
	s.Ended(Cancelled, 2, time.Second, time.Second)
	got := values(t, s.Gatherer())
	for key, want := range map[string]float64{
		"ringfleet_worker_prompt_tokens_total model_name=org/m":               7,
		"vllm:prompt_tokens_total model_name=org/m":                           7,
		"ringfleet_worker_generation_tokens_total model_name=org/m":           5,
		"vllm:generation_tokens_total model_name=org/m":                       5,
		"vllm:time_to_first_token_seconds model_name=org/m sum":               .2,
		"vllm:inter_token_latency_seconds model_name=org/m count":             2,
		"vllm:inter_token_latency_seconds model_name=org/m sum":               1,
		"vllm:request_time_per_output_token_seconds model_name=org/m sum":     .5,
		"vllm:e2e_request_latency_seconds model_name=org/m count":             1,
		"ringfleet_worker_request_seconds model_name=org/m sum":               3,
		"vllm:request_success_total finished_reason=stop model_name=org/m":    1,
		"vllm:request_success_total finished_reason=length model_name=org/m":  0,
		"ringfleet_worker_requests_total model_name=org/m outcome=cancelled":  1,
		"ringfleet_worker_requests_total model_name=org/m outcome=failed":     0,
		"ringfleet_worker_time_to_first_token_seconds model_name=org/m count": 1,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (present: %v), want %v", key, v, ok, want)
		}
	}
}

func TestUnknownFiguresAreLeftOut(t *testing.T) {
	used, cached, total, rate := int64(3), int64(5), int64(12), 90.0
	queries, hits, preemptions, half := int64(100), int64(60), int64(7), .5
	now := Now{Stage: "Loading", Progress: &half}
	s := New("m", func() Now { return now })
	got := values(t, s.Gatherer())
	if got["ringfleet_worker_model_loaded model_name=m"] != 0 || got["ringfleet_worker_stage_progress_ratio model_name=m"] != .5 ||
		got["ringfleet_worker_stage model_name=m stage=Loading"] != 1 || got["ringfleet_worker_stage model_name=m stage=Loaded"] != 0 {
		t.Errorf("before the load: %v", got)
	}
	if _, ok := got["vllm:kv_cache_usage_perc model_name=m"]; ok {
		t.Error("an unknown share of the KV cache has a value")
	}
	now = Now{Loaded: true, Stage: "Loaded", Stats: engine.Stats{Running: 4, Waiting: 1, KVBlockTokens: 16, KVBlocksUsed: &used,
		KVBlocksCached: &cached, KVBlocksTotal: &total, DecodePerSecond: &rate, CacheQueries: &queries, CacheHits: &hits, Preemptions: &preemptions}}
	got = values(t, s.Gatherer())
	for key, want := range map[string]float64{
		"ringfleet_worker_model_loaded": 1, "ringfleet_worker_requests_running": 4, "vllm:num_requests_running": 4,
		"ringfleet_worker_requests_waiting": 1, "vllm:num_requests_waiting": 1, "vllm:kv_cache_usage_perc": .25,
		"ringfleet_worker_kv_blocks_cached": 5, "ringfleet_worker_prefix_cache_query_tokens_total": 100, "vllm:prefix_cache_hits_total": 60,
		"vllm:num_preemptions_total":      7,
		"ringfleet_worker_kv_blocks_used": 3, "ringfleet_worker_kv_blocks_total": 12, "ringfleet_worker_decode_tokens_per_second": 90,
	} {
		if v, ok := got[key+" model_name=m"]; !ok || v != want {
			t.Errorf("%s is %v (present: %v), want %v", key, v, ok, want)
		}
	}
}

func TestTheCachesShapeIsALabel(t *testing.T) {
	total := int64(512)
	s := New("m", func() Now { return Now{Stats: engine.Stats{KVBlockTokens: 16, KVBlocksTotal: &total}} })
	if got := values(t, s.Gatherer())["vllm:cache_config_info block_size=16 model_name=m num_gpu_blocks=512"]; got != 1 {
		t.Errorf("got %v", got)
	}
}

func TestStepsAreBookedByWhatTheyComputed(t *testing.T) {
	s := New("m", func() Now { return Now{} })
	s.Steps().Stepped(&scheduler.StepRecord{Took: time.Second, Sampling: time.Millisecond, Prefill: 100, Decode: 4, Sequences: 5})
	s.Steps().Stepped(&scheduler.StepRecord{Took: time.Second, Decode: 4, Sequences: 4})
	s.Steps().Stepped(&scheduler.StepRecord{Took: time.Second, Prefill: 100, Aborted: true})
	s.Steps().Ended(&scheduler.RequestRecord{Queue: 2 * time.Second})
	s.Steps().Ended(&scheduler.RequestRecord{Queue: -1})
	got := values(t, s.Gatherer())
	for key, want := range map[string]float64{
		"ringfleet_worker_step_seconds model_name=m sum":               2,
		"ringfleet_worker_step_sequences model_name=m sum":             9,
		"ringfleet_worker_step_tokens kind=prefill model_name=m count": 1,
		"ringfleet_worker_step_tokens kind=decode model_name=m sum":    8,
		"ringfleet_worker_steps_aborted_total model_name=m":            1,
		"ringfleet_worker_queue_seconds model_name=m sum":              2,
		"vllm:request_queue_time_seconds model_name=m count":           1,
		"ringfleet_worker_step_sampling_seconds model_name=m count":    2,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (present: %v), want %v", key, v, ok, want)
		}
	}
}

func TestTheTextFormatParsesAndHasClassicAndNativeBuckets(t *testing.T) {
	s := New("m", func() Now { return Now{} })
	s.FirstToken(time.Second)
	families, err := s.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&wire, f); err != nil {
			t.Fatal(err)
		}
		if h := f.GetMetric()[0].GetHistogram(); h != nil && f.GetName() == "vllm:time_to_first_token_seconds" {
			if len(h.GetBucket()) != len(firstBuckets) || h.GetSchema() == 0 && len(h.GetPositiveSpan()) == 0 {
				t.Errorf("%s has %d classic buckets and %d native spans", f.GetName(), len(h.GetBucket()), len(h.GetPositiveSpan()))
			}
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	back, err := parser.TextToMetricFamilies(&wire)
	if err != nil {
		t.Fatal(err)
	}
	if len(back) != len(families) {
		t.Errorf("%d of %d families came back", len(back), len(families))
	}
}

func TestNamesFollowPrometheusHabits(t *testing.T) {
	s := New("m", func() Now { return Now{Loaded: true} })
	problems, err := testutil.GatherAndLint(s.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "vllm:") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
