package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringfleet/ringfleet/worker/gpu"
)

func TestAGPUsFiguresAreLeftOutWhereItDoesNotTellThem(t *testing.T) {
	s := New("m", func() Now { return Now{} })
	used, busy, watts := uint64(1<<30), uint32(40), uint32(350_500)
	s.Add(NewGPUs(func() gpu.Snapshot {
		return gpu.Snapshot{Devices: []gpu.Reading{
			{Device: gpu.Device{Index: 0, UUID: "GPU-a", Name: "H100", MemoryBytes: 80 << 30}, UsedBytes: &used, Busy: &busy, Milliwatts: &watts, XIDs: map[uint64]uint64{79: 2}, Failure: "is lost"},
			{Device: gpu.Device{Index: 1, UUID: "GPU-b", Name: "H100"}},
		}}
	}))
	got := values(t, s.Gatherer())
	const a, b = " gpu=0 product=H100 uuid=GPU-a", " gpu=1 product=H100 uuid=GPU-b"
	for key, want := range map[string]float64{
		"ringfleet_worker_gpu_devices": 2, "ringfleet_worker_gpu_memory_bytes" + a: 80 << 30, "ringfleet_worker_gpu_memory_used_bytes" + a: 1 << 30,
		"ringfleet_worker_gpu_busy_ratio" + a: .4, "ringfleet_worker_gpu_power_watts" + a: 350.5, "ringfleet_worker_gpu_failed" + a: 1,
		"ringfleet_worker_gpu_failed" + b: 0, "ringfleet_worker_gpu_xid_events_total gpu=0 product=H100 uuid=GPU-a xid=79": 2,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (present: %v), want %v", key, v, ok, want)
		}
	}
	for _, key := range []string{"ringfleet_worker_gpu_memory_bytes" + b, "ringfleet_worker_gpu_temperature_celsius" + a} {
		if v, ok := got[key]; ok {
			t.Errorf("%s is %v, and was not told", key, v)
		}
	}
}

func TestAMachineWithoutGPUsSaysSo(t *testing.T) {
	s := New("m", func() Now { return Now{} })
	s.Add(NewGPUs(func() gpu.Snapshot { return gpu.Snapshot{} }))
	if got, ok := values(t, s.Gatherer())["ringfleet_worker_gpu_devices"]; !ok || got != 0 {
		t.Errorf("got %v (present: %v)", got, ok)
	}
	problems, err := testutil.GatherAndLint(s.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if len(p.Metric) > 20 && p.Metric[:20] == "ringfleet_worker_gpu" {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
