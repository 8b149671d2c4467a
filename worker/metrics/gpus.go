package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringfleet/ringfleet/worker/gpu"
)

// gpus reads the GPUs that the worker can see. The driver is not asked: the readings are those of the last seconds.
type gpus struct {
	read    func() gpu.Snapshot
	devices *prometheus.Desc
	failed  *prometheus.Desc
	xids    *prometheus.Desc
	list    []gpuFigure
}

// gpuFigure is one figure of a device; of returns false where it is unknown.
type gpuFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*gpu.Reading) (float64, bool)
}

// NewGPUs returns a collector of what read returns. A machine without GPUs has ringfleet_worker_gpu_devices 0 and no more.
func NewGPUs(read func() gpu.Snapshot) prometheus.Collector {
	g := &gpus{read: read,
		devices: prometheus.NewDesc("ringfleet_worker_gpu_devices", "NVIDIA devices that the worker can see.", nil, nil),
		failed:  prometheus.NewDesc("ringfleet_worker_gpu_failed", "1 where the driver says that a device can't be used, or its memory has rows that can't be replaced.", gpuLabels, nil),
		xids:    prometheus.NewDesc("ringfleet_worker_gpu_xid_events_total", "The driver's error events by code since the worker started.", append([]string{"xid"}, gpuLabels...), nil),
	}
	add := func(kind prometheus.ValueType, name, help string, of func(*gpu.Reading) (float64, bool)) {
		g.list = append(g.list, gpuFigure{prometheus.NewDesc(name, help, gpuLabels, nil), kind, of})
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "ringfleet_worker_gpu_memory_bytes", "Size of a device's memory.", func(r *gpu.Reading) (float64, bool) {
		return float64(r.MemoryBytes), r.MemoryBytes > 0
	})
	add(gauge, "ringfleet_worker_gpu_memory_used_bytes", "Memory of a device that all processes use.", func(r *gpu.Reading) (float64, bool) { return number(r.UsedBytes, 1) })
	add(gauge, "ringfleet_worker_gpu_busy_ratio", "Part of the last sample period in which a kernel ran.", func(r *gpu.Reading) (float64, bool) { return number(r.Busy, 100) })
	add(gauge, "ringfleet_worker_gpu_temperature_celsius", "Temperature of a device.", func(r *gpu.Reading) (float64, bool) { return number(r.Celsius, 1) })
	add(gauge, "ringfleet_worker_gpu_power_watts", "Power that a device draws.", func(r *gpu.Reading) (float64, bool) { return number(r.Milliwatts, 1000) })
	add(counter, "ringfleet_worker_gpu_memory_corrected_errors_total", "Memory errors that were corrected, since the driver was loaded.", func(r *gpu.Reading) (float64, bool) { return number(r.CorrectedErrors, 1) })
	add(counter, "ringfleet_worker_gpu_memory_uncorrected_errors_total", "Memory errors that were not corrected, since the driver was loaded.", func(r *gpu.Reading) (float64, bool) { return number(r.UncorrectedErrors, 1) })
	return g
}

var gpuLabels = []string{"gpu", "uuid", "product"}

func number[T uint32 | uint64](v *T, unit float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v) / unit, true
}

// Describe names the figures.
func (g *gpus) Describe(out chan<- *prometheus.Desc) {
	out <- g.devices
	out <- g.failed
	out <- g.xids
	for _, x := range g.list {
		out <- x.desc
	}
}

// Collect reads the figures; unknown ones are left out.
func (g *gpus) Collect(out chan<- prometheus.Metric) {
	now := g.read()
	out <- prometheus.MustNewConstMetric(g.devices, prometheus.GaugeValue, float64(len(now.Devices)))
	for i := range now.Devices {
		r := &now.Devices[i]
		labels := []string{strconv.Itoa(r.Index), r.UUID, r.Name}
		failed := 0.0
		if r.Failure != "" || r.RowsFailed {
			failed = 1
		}
		out <- prometheus.MustNewConstMetric(g.failed, prometheus.GaugeValue, failed, labels...)
		for _, x := range g.list {
			if v, ok := x.of(r); ok {
				out <- prometheus.MustNewConstMetric(x.desc, x.kind, v, labels...)
			}
		}
		for code, n := range r.XIDs {
			out <- prometheus.MustNewConstMetric(g.xids, prometheus.CounterValue, float64(n), append([]string{strconv.FormatUint(code, 10)}, labels...)...)
		}
	}
}
