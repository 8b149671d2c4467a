//go:build cgo

package gpu

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server of eight GPUs, as go-nvml's own doubles have it, with what they leave out: readings and events.
type rig struct {
	*server.Server
	clock  *clocktesting.FakeClock
	log    bytes.Buffer
	events chan nvml.EventData // what Wait returns
	quiet  chan struct{}       // Wait returns a timeout for each, and when nothing is left
	inside chan struct{}       // closed when Wait is called for the first time
	freed  int
}

func newRig(s *server.Server) *rig {
	r := &rig{Server: s, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), events: make(chan nvml.EventData), quiet: make(chan struct{}), inside: make(chan struct{})}
	entered := sync.OnceFunc(func() { close(r.inside) })
	s.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { r.freed++; return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				entered()
				select {
				case e := <-r.events:
					return e, nvml.SUCCESS
				case <-r.quiet:
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
		}, nvml.SUCCESS
	}
	for i := range s.Devices {
		d := r.device(i)
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 70, Memory: 30}, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, nvml.SUCCESS }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 412_000, nvml.SUCCESS }
		d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700_000, nvml.SUCCESS }
		d.GetTotalEccErrorsFunc = func(of nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			return map[nvml.MemoryErrorType]uint64{nvml.MEMORY_ERROR_TYPE_CORRECTED: 5}[of], nvml.SUCCESS
		}
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS }
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeAll, nvml.SUCCESS }
		d.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
			if types != wanted {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.SUCCESS
		}
	}
	return r
}

func (r *rig) device(i int) *server.Device { return r.Devices[i].(*server.Device) }

// open starts a monitor, which ends with the test.
func (r *rig) open(t *testing.T) *Monitor {
	t.Helper()
	s, err := openSystem(r.Server)
	if err != nil {
		t.Fatal(err)
	}
	m, err := start(s, Options{Clock: r.clock, Log: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(r.quiet) // the library's call returns
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// turn lets the monitor's goroutine go round once: after the second the first round is over.
func (r *rig) turn() { r.quiet <- struct{}{}; r.quiet <- struct{}{} }

// report lets the driver report an event and waits until it is recorded.
func (r *rig) report(device int, kind, code uint64) {
	e := nvml.EventData{EventType: kind, EventData: code}
	if device >= 0 {
		e.Device = r.device(device)
	}
	r.events <- e
	r.turn()
}

func TestEveryDeviceOfAServerIsListed(t *testing.T) {
	for name, c := range map[string]struct {
		server *server.Server
		memory uint64
	}{"A100": {dgxa100.New(), 40 << 30}, "H100": {dgxh100.New(), 80 << 30}} {
		m := newRig(c.server).open(t)
		s := m.Snapshot()
		if len(s.Devices) != 8 {
			t.Fatalf("%d devices, want 8", len(s.Devices))
		}
		for i, d := range s.Devices {
			if d.Index != i || !strings.Contains(d.Name, name) || !strings.HasPrefix(d.UUID, "GPU-") || d.MemoryBytes < c.memory {
				t.Errorf("device %d is %+v", i, d.Device)
			}
		}
		if err := m.Health(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestADeviceIsReadEveryFewSeconds(t *testing.T) {
	r := newRig(dgxh100.New())
	r.device(3).MemoryInfo.Used = 7 << 30
	m := r.open(t)
	d := m.Snapshot().Devices[3]
	if *d.UsedBytes != 7<<30 || *d.Busy != 70 || *d.MemoryBusy != 30 || *d.Celsius != 61 || *d.Milliwatts != 412_000 || *d.LimitMilliwatts != 700_000 ||
		*d.CorrectedErrors != 5 || *d.UncorrectedErrors != 0 {
		t.Errorf("got %+v", d)
	}
	r.turn()
	r.device(3).Lock()
	r.device(3).MemoryInfo.Used = 9 << 30
	r.device(3).Unlock()
	r.clock.Step(every)
	r.turn()
	if s := m.Snapshot(); *s.Devices[3].UsedBytes != 9<<30 || !s.At.Equal(r.clock.Now()) {
		t.Errorf("got %+v at %s", s.Devices[3], s.At)
	}
}

func TestWhatADeviceDoesNotTellIsUnknown(t *testing.T) {
	r := newRig(dgxa100.New())
	d := r.device(0)
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_NO_PERMISSION }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	m := r.open(t)
	got := m.Snapshot().Devices[0]
	if got.Busy != nil || got.MemoryBusy != nil || got.Milliwatts != nil || got.CorrectedErrors != nil || got.UncorrectedErrors != nil || got.Celsius == nil {
		t.Errorf("got %+v", got)
	}
	if err := m.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPartsOfADeviceAreListed(t *testing.T) {
	r := newRig(dgxa100.New())
	d := r.device(1)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NO_PERMISSION }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc:              func() (string, nvml.Return) { return "MIG-1", nvml.SUCCESS },
			GetNameFunc:              func() (string, nvml.Return) { return "NVIDIA A100 MIG 3g.20gb", nvml.SUCCESS },
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return 4, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
			GetMemoryInfoFunc:        func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 20 << 30, Used: 1 << 30}, nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	got := r.open(t).Snapshot().Devices[1]
	want := Part{UUID: "MIG-1", Name: "NVIDIA A100 MIG 3g.20gb", MemoryBytes: 20 << 30, UsedBytes: 1 << 30, GPUInstance: 4}
	if !slices.Equal(got.Parts, []Part{want}) || got.MemoryBytes != 0 || got.UsedBytes != nil {
		t.Errorf("got %+v", got)
	}
}

func TestEventsAreJudgedByTheirCode(t *testing.T) {
	for name, c := range map[string]struct {
		kind, code uint64
		severity   Severity
		says       string
	}{
		"a program's fault":       {nvml.EventTypeXidCriticalError, 31, Program, "XID 31: memory page fault"},
		"a row to be replaced":    {nvml.EventTypeXidCriticalError, 63, Notice, "XID 63"},
		"off the bus":             {nvml.EventTypeXidCriticalError, 79, Broken, "fallen off the bus"},
		"an unknown code":         {nvml.EventTypeXidCriticalError, 4711, Broken, "XID 4711"},
		"two bits":                {nvml.EventTypeDoubleBitEccError, 0, Broken, "double-bit ECC error"},
		"many single bits":        {nvml.EventTypeSingleBitEccErrorStorm, 0, Notice, "many single-bit"},
		"something not asked for": {nvml.EventTypeClock, 0, Notice, "type 16"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(dgxh100.New())
			m := r.open(t)
			r.report(5, c.kind, c.code)
			s := m.Snapshot()
			if len(s.Events) != 1 {
				t.Fatalf("got %+v", s.Events)
			}
			e := s.Events[0]
			if e.Index != 5 || e.UUID != s.Devices[5].UUID || e.XID != c.code || e.Severity != c.severity || !strings.Contains(e.Says, c.says) || !e.At.Equal(r.clock.Now()) {
				t.Errorf("got %+v", e)
			}
			if s.Devices[5].XIDs[c.code] != 1 || len(s.Devices[4].XIDs) != 0 {
				t.Errorf("counted %v and %v", s.Devices[5].XIDs, s.Devices[4].XIDs)
			}
			err := m.Health(t.Context())
			var unhealthy *UnhealthyError
			if errors.As(err, &unhealthy) != (c.severity == Broken) {
				t.Errorf("health is %v", err)
			}
			if unhealthy != nil && (len(unhealthy.Reasons) != 1 || !strings.HasPrefix(unhealthy.Reasons[0], "device 5 (GPU-") || !strings.Contains(err.Error(), "reported "+e.Says)) {
				t.Errorf("the reasons are %q", unhealthy.Reasons)
			}
		})
	}
}

func TestABrokenDeviceStaysBrokenAndEventsAreBounded(t *testing.T) {
	r := newRig(dgxh100.New())
	m := r.open(t)
	r.report(-1, nvml.EventTypeXidCriticalError, 48)
	for code := range uint64(3 * Kept) {
		r.report(0, nvml.EventTypeXidCriticalError, 100_000+code)
	}
	s := m.Snapshot()
	if len(s.Events) != Kept || s.Events[Kept-1].XID != 100_000+3*Kept-1 || len(s.Devices[0].XIDs) != maxCodes {
		t.Errorf("%d events, the last %+v, %d codes", len(s.Events), s.Events[len(s.Events)-1], len(s.Devices[0].XIDs))
	}
	if err := m.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "a device reported XID 48") || !strings.Contains(err.Error(), "device 0 (GPU-") {
		t.Errorf("health is %v", err)
	}
}

func TestADeviceThatFailsSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server.Device)
		says   string
	}{
		"it is lost": {func(d *server.Device) {
			d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
		}, "is lost"},
		"it must be reset": {func(d *server.Device) {
			d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_RESET_REQUIRED }
		}, "must be reset"},
		"its memory wears out": {func(d *server.Device) {
			d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, false, true, nvml.SUCCESS }
		}, "has rows of memory that can't be replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(dgxh100.New())
			c.change(r.device(2))
			if err := r.open(t).Health(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "gpu: device 2 (GPU-") || !strings.HasSuffix(err.Error(), c.says) {
				t.Errorf("health is %v", err)
			}
		})
	}
}

func TestADriverThatHangsIsUnhealthyAndNobodyWaitsForIt(t *testing.T) {
	r := newRig(dgxh100.New())
	m := r.open(t)
	<-r.inside
	r.clock.Step(silence + time.Second)
	if err := m.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "hasn't answered for 61 s") {
		t.Errorf("health is %v", err)
	}
	r.turn()
	if err := m.Health(t.Context()); err != nil {
		t.Errorf("health is %v after the driver answered", err)
	}
}

func TestCloseDoesNotWaitForADriverThatHangs(t *testing.T) {
	r := newRig(dgxh100.New())
	s, err := openSystem(r.Server)
	if err != nil {
		t.Fatal(err)
	}
	m, err := start(s, Options{Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	<-r.inside
	ended := make(chan error)
	go func() { ended <- m.Close() }()
	for !r.clock.HasWaiters() {
		r.clock.Step(0)
	}
	r.clock.Step(patience)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "hasn't answered for 5 s") || r.freed != 0 {
		t.Errorf("ended with %v, freed %d times", err, r.freed)
	}
	close(r.quiet) // the goroutine may go
	<-m.done
}

func TestDevicesWithoutEventsAreWatchedAllTheSame(t *testing.T) {
	r := newRig(dgxh100.New())
	for i := range r.Devices {
		r.device(i).GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	}
	m := r.open(t)
	r.device(0).Lock()
	r.device(0).MemoryInfo.Used = 5 << 30
	r.device(0).Unlock()
	for *m.Snapshot().Devices[0].UsedBytes != 5<<30 {
		r.clock.Step(every)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(r.log.String(), "The driver tells no GPU events"); n != 1 || !strings.Contains(r.log.String(), "none of 8 devices has events") {
		t.Errorf("said %d times: %s", n, r.log.String())
	}
}

func TestAMissingLibraryOrDriverIsNoDeviceAndNoError(t *testing.T) {
	for _, ret := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED} {
		s, err := openSystem(&mock.Interface{InitFunc: func() nvml.Return { return ret }})
		if err != nil || s != nil {
			t.Errorf("NVML says %d: %v, %v", ret, s, err)
		}
	}
	m, err := start(nil, Options{Clock: clocktesting.NewFakeClock(time.Time{})})
	if err != nil || len(m.Snapshot().Devices) != 0 || m.Health(t.Context()) != nil || m.Close() != nil {
		t.Errorf("got %+v, %v", m, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Health(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestADriverWithoutDevicesIsEnded(t *testing.T) {
	lib := &mock.Interface{
		InitFunc: func() nvml.Return { return nvml.SUCCESS }, ShutdownFunc: func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
	}
	s, err := openSystem(lib)
	if err != nil {
		t.Fatal(err)
	}
	m, err := start(s, Options{Clock: clocktesting.NewFakeClock(time.Time{})})
	if err != nil || len(lib.ShutdownCalls()) != 1 || m.Health(t.Context()) != nil || m.Close() != nil {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestABrokenDriverIsAnError(t *testing.T) {
	fails := func(ret nvml.Return) func(*server.Device) {
		return func(d *server.Device) { d.GetNameFunc = func() (string, nvml.Return) { return "", ret } }
	}
	for name, c := range map[string]struct {
		change func(*rig)
		says   string
	}{
		"it can't be started": {func(r *rig) { r.InitFunc = func() nvml.Return { return nvml.ERROR_LIB_RM_VERSION_MISMATCH } }, "start NVML: NVML says 18"},
		"it can't count": {func(r *rig) { r.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST } },
			"count devices: NVML says 15"},
		"a device has no name": {func(r *rig) { fails(nvml.ERROR_UNKNOWN)(r.device(4)) }, "read the name of device 4: NVML says 999"},
		"a device has no memory": {func(r *rig) {
			r.device(1).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
		}, "read the memory of device 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(dgxh100.New())
			c.change(r)
			s, err := openSystem(r.Server)
			if s != nil {
				_, err = start(s, Options{Clock: r.clock})
				if len(r.ShutdownCalls()) != 1 {
					t.Error("NVML was not ended")
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestThisMachineCanBeAsked(t *testing.T) {
	if _, err := List(); err != nil {
		t.Fatal(err)
	}
	m, err := Open(Options{Clock: clocktesting.NewFakeClock(time.Time{})})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Snapshot().Devices {
		t.Logf("%+v", d)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
