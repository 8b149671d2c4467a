package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// Now is how things stand when the metrics are read.
type Now struct {
	// Loaded: the model is loaded, and Stats are the engine's.
	Loaded bool
	Stats  engine.Stats
	// Stage is one of Stages, and Progress, where known, its part from 0 to 1.
	Stage    string
	Progress *float64
}

// Source is asked whenever the metrics are read.
type Source func() Now

// Stages are the values of a worker's stage.
var Stages = []string{"Fetching", "Loading", "Loaded", "Failed", "Draining"}

// figures reads the engine's own figures.
type figures struct {
	read   Source
	list   []value
	stage  *prometheus.Desc
	config *prometheus.Desc
}

// value is one figure; of returns false where it is unknown.
type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(Now) (float64, bool)
}

func newFigures(read Source) *figures {
	g := &figures{read: read,
		stage: prometheus.NewDesc("ringfleet_worker_stage", "1 for the stage that the worker is in.", []string{"stage"}, nil),
		config: prometheus.NewDesc("vllm:cache_config_info", "The KV cache's blocks: their size in tokens and their number.",
			[]string{"block_size", "num_gpu_blocks"}, nil),
	}
	add := func(kind prometheus.ValueType, help string, of func(Now) (float64, bool), names ...string) {
		for _, name := range names {
			g.list = append(g.list, value{prometheus.NewDesc(name, help, nil, nil), kind, of})
		}
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	known := func(of func(Now) float64) func(Now) (float64, bool) {
		return func(n Now) (float64, bool) { return of(n), true }
	}
	add(gauge, "1 while the model is loaded.", known(func(n Now) float64 {
		if n.Loaded {
			return 1
		}
		return 0
	}), telemetry.WorkerModelLoaded)
	add(gauge, "Part of the stage that is done, from 0 to 1.", func(n Now) (float64, bool) { return figure(n.Progress) },
		"ringfleet_worker_stage_progress_ratio")
	add(gauge, "Requests that hold a sequence.", known(func(n Now) float64 { return float64(n.Stats.Running) }),
		telemetry.WorkerRequestsRunning, "vllm:num_requests_running")
	add(gauge, "Requests that wait for a sequence.", known(func(n Now) float64 { return float64(n.Stats.Waiting) }),
		telemetry.WorkerRequestsWaiting, "vllm:num_requests_waiting")
	add(gauge, "KV-cache blocks that running requests hold.", func(n Now) (float64, bool) { return figure(n.Stats.KVBlocksUsed) },
		telemetry.WorkerKVBlocksUsed)
	add(gauge, "KV-cache blocks that are held only for reuse.", func(n Now) (float64, bool) { return figure(n.Stats.KVBlocksCached) },
		"ringfleet_worker_kv_blocks_cached")
	add(gauge, "KV-cache blocks.", func(n Now) (float64, bool) { return figure(n.Stats.KVBlocksTotal) }, telemetry.WorkerKVBlocksTotal)
	add(gauge, "Share of the KV-cache blocks that running requests hold, from 0 to 1.", usage, "vllm:kv_cache_usage_perc")
	add(counter, "Prompt tokens that were looked up in the prefix cache.", func(n Now) (float64, bool) { return figure(n.Stats.CacheQueries) },
		"ringfleet_worker_prefix_cache_query_tokens_total", "vllm:prefix_cache_queries_total")
	add(counter, "Prompt tokens that were found in the prefix cache.", func(n Now) (float64, bool) { return figure(n.Stats.CacheHits) },
		"ringfleet_worker_prefix_cache_hit_tokens_total", "vllm:prefix_cache_hits_total")
	add(counter, "Sequences that gave their KV blocks to others, to be computed again.", func(n Now) (float64, bool) { return figure(n.Stats.Preemptions) },
		"ringfleet_worker_preemptions_total", "vllm:num_preemptions_total")
	add(counter, "Cached KV blocks that were given to other tokens.", func(n Now) (float64, bool) { return figure(n.Stats.Evictions) },
		"ringfleet_worker_kv_block_evictions_total")
	add(gauge, "Prompt tokens per second over the last ten seconds of work.", func(n Now) (float64, bool) { return figure(n.Stats.PrefillPerSecond) },
		"ringfleet_worker_prefill_tokens_per_second")
	add(gauge, "Generated tokens per second over the last ten seconds of work.", func(n Now) (float64, bool) { return figure(n.Stats.DecodePerSecond) },
		"ringfleet_worker_decode_tokens_per_second")
	return g
}

func usage(n Now) (float64, bool) {
	used, total := n.Stats.KVBlocksUsed, n.Stats.KVBlocksTotal
	if used == nil || total == nil || *total == 0 {
		return 0, false
	}
	return float64(*used) / float64(*total), true
}

func figure[T int64 | float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

// Describe names the figures.
func (g *figures) Describe(out chan<- *prometheus.Desc) {
	out <- g.stage
	out <- g.config
	for _, x := range g.list {
		out <- x.desc
	}
}

// Collect reads the figures; unknown ones are left out.
func (g *figures) Collect(out chan<- prometheus.Metric) {
	now := g.read()
	for _, x := range g.list {
		if v, ok := x.of(now); ok {
			out <- prometheus.MustNewConstMetric(x.desc, x.kind, v)
		}
	}
	for _, stage := range Stages {
		is := 0.0
		if stage == now.Stage {
			is = 1
		}
		out <- prometheus.MustNewConstMetric(g.stage, prometheus.GaugeValue, is, stage)
	}
	if total := now.Stats.KVBlocksTotal; total != nil {
		out <- prometheus.MustNewConstMetric(g.config, prometheus.GaugeValue, 1,
			strconv.Itoa(now.Stats.KVBlockTokens), strconv.FormatInt(*total, 10))
	}
}
