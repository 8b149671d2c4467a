//go:build cgo

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// List returns the devices. Without NVIDIA's library or driver there are none, which is not an error.
func List() ([]Device, error) { return list(nvml.New()) }

func list(lib nvml.Interface) (devices []Device, err error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, nil
	default:
		return nil, failure("start NVML", ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS && err == nil {
			err = failure("end NVML", ret)
		}
	}()
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failure("count devices", ret)
	}
	for i := range n {
		d, err := device(lib, i)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func device(lib nvml.Interface, index int) (Device, error) {
	d := Device{Index: index}
	handle, ret := lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("open device %d", index), ret)
	}
	if d.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("read the name of device %d", index), ret)
	}
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("read the UUID of device %d", index), ret)
	}
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("read the memory of device %d", index), ret)
	}
	d.MemoryBytes = memory.Total
	return d, nil
}

func failure(what string, ret nvml.Return) error {
	return fmt.Errorf("gpu: %s: NVML says %d", what, int(ret))
}
