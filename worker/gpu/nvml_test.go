//go:build cgo

package gpu

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
)

func TestEveryDeviceOfAServerIsListed(t *testing.T) {
	server := dgxh100.New()
	server.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	got, err := list(server)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 8 {
		t.Fatalf("%d devices, want 8", len(got))
	}
	for i, d := range got {
		if d.Index != i || !strings.Contains(d.Name, "H100") || !strings.HasPrefix(d.UUID, "GPU-") || d.MemoryBytes < 80<<30 {
			t.Errorf("device %d is %+v", i, d)
		}
	}
	if len(server.ShutdownCalls()) != 1 {
		t.Errorf("NVML was ended %d times", len(server.ShutdownCalls()))
	}
}

func TestAMissingLibraryOrDriverIsNoDeviceAndNoError(t *testing.T) {
	for _, ret := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED} {
		got, err := list(&mock.Interface{InitFunc: func() nvml.Return { return ret }})
		if err != nil || len(got) != 0 {
			t.Errorf("NVML says %d: %v, %v", ret, got, err)
		}
	}
}

func TestABrokenDriverIsAnError(t *testing.T) {
	lib := &mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST },
	}
	if _, err := list(lib); err == nil || !strings.Contains(err.Error(), "count devices") {
		t.Fatalf("got %v", err)
	}
	if len(lib.ShutdownCalls()) != 1 {
		t.Error("NVML was not ended")
	}
}

func TestThisMachineCanBeAsked(t *testing.T) {
	if _, err := List(); err != nil {
		t.Fatal(err)
	}
}
