package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringfleet/ringfleet/worker/engine"
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
	s := New("org/m", 0, func() (engine.Stats, bool) { return engine.Stats{}, false })
	s.Accepted(7)
	s.FirstToken(200 * time.Millisecond)
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
		"vllm:inter_token_latency_seconds model_name=org/m sum":               .5,
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
	used, total, rate := int64(3), int64(12), 90.0
	stats, loaded := engine.Stats{}, false
	s := New("m", 2, func() (engine.Stats, bool) { return stats, loaded })
	got := values(t, s.Gatherer())
	if got["ringfleet_worker_model_loaded model_name=m"] != 0 || got["ringfleet_worker_gpu_devices model_name=m"] != 2 {
		t.Errorf("before the load: %v", got)
	}
	if _, ok := got["vllm:kv_cache_usage_perc model_name=m"]; ok {
		t.Error("an unknown share of the KV cache has a value")
	}
	stats, loaded = engine.Stats{Running: 4, Waiting: 1, KVBlocksUsed: &used, KVBlocksTotal: &total, DecodePerSecond: &rate}, true
	got = values(t, s.Gatherer())
	for key, want := range map[string]float64{
		"ringfleet_worker_model_loaded": 1, "ringfleet_worker_requests_running": 4, "vllm:num_requests_running": 4,
		"ringfleet_worker_requests_waiting": 1, "vllm:num_requests_waiting": 1, "vllm:kv_cache_usage_perc": .25,
		"ringfleet_worker_kv_blocks_used": 3, "ringfleet_worker_kv_blocks_total": 12, "ringfleet_worker_decode_tokens_per_second": 90,
	} {
		if v, ok := got[key+" model_name=m"]; !ok || v != want {
			t.Errorf("%s is %v (present: %v), want %v", key, v, ok, want)
		}
	}
}

func TestNamesFollowPrometheusHabits(t *testing.T) {
	s := New("m", 0, func() (engine.Stats, bool) { return engine.Stats{}, true })
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
