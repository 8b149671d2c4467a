//go:build cgo

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// system is NVIDIA's library.
type system struct {
	lib     nvml.Interface
	handles []nvml.Device
	events  nvml.EventSet // nil where there are none
	deaf    error         // why
}

// open starts NVML; nil without a library or a driver.
func open() (driver, error) {
	s, err := openSystem(nvml.New())
	if s == nil {
		return nil, err
	}
	return s, err
}

func openSystem(lib nvml.Interface) (*system, error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
		return &system{lib: lib}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, nil
	default:
		return nil, failure("start NVML", ret)
	}
}

func (s *system) close() error {
	var err error
	if s.events != nil {
		if ret := s.events.Free(); ret != nvml.SUCCESS {
			err = failure("free the events", ret)
		}
	}
	if ret := s.lib.Shutdown(); ret != nvml.SUCCESS && err == nil {
		err = failure("end NVML", ret)
	}
	return err
}

func (s *system) devices() ([]Device, error) {
	n, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failure("count devices", ret)
	}
	s.handles = make([]nvml.Device, n)
	var devices []Device
	for i := range n {
		if s.handles[i], ret = s.lib.DeviceGetHandleByIndex(i); ret != nvml.SUCCESS {
			return nil, failure(fmt.Sprintf("open device %d", i), ret)
		}
		d, err := device(s.handles[i], i)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func device(handle nvml.Device, index int) (Device, error) {
	d := Device{Index: index}
	var ret nvml.Return
	if d.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("read the name of device %d", index), ret)
	}
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, failure(fmt.Sprintf("read the UUID of device %d", index), ret)
	}
	d.Parts = parts(handle)
	switch memory, ret := handle.GetMemoryInfo(); {
	case ret == nvml.SUCCESS:
		d.MemoryBytes = memory.Total
	case len(d.Parts) > 0: // a container that has a part of a device isn't told of the whole
	default:
		return d, failure(fmt.Sprintf("read the memory of device %d", index), ret)
	}
	return d, nil
}

// parts lists the MIG instances of a device.
func parts(handle nvml.Device) []Part {
	if mode, _, ret := handle.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	n, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var found []Part
	for i := range n {
		h, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // this place is free
		}
		var p Part
		p.UUID, _ = h.GetUUID()
		p.Name, _ = h.GetName()
		p.GPUInstance, _ = h.GetGpuInstanceId()
		p.ComputeInstance, _ = h.GetComputeInstanceId()
		if memory, ret := h.GetMemoryInfo(); ret == nvml.SUCCESS {
			p.MemoryBytes, p.UsedBytes = memory.Total, memory.Used
		}
		found = append(found, p)
	}
	return found
}

func (s *system) read(d Device) Reading {
	r := Reading{Device: d}
	h := s.handles[d.Index]
	// told keeps a lost device's state and reports whether the call answered.
	told := func(ret nvml.Return) bool {
		switch ret {
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND:
			r.Failure = "is lost"
		case nvml.ERROR_RESET_REQUIRED:
			r.Failure = "must be reset"
		}
		return ret == nvml.SUCCESS
	}
	if memory, ret := h.GetMemoryInfo(); told(ret) {
		r.UsedBytes = &memory.Used
	}
	if len(d.Parts) > 0 {
		r.Parts = parts(h)
	}
	if use, ret := h.GetUtilizationRates(); told(ret) {
		r.Busy, r.MemoryBusy = &use.Gpu, &use.Memory
	}
	if t, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); told(ret) {
		r.Celsius = &t
	}
	if p, ret := h.GetPowerUsage(); told(ret) {
		r.Milliwatts = &p
	}
	if p, ret := h.GetEnforcedPowerLimit(); told(ret) {
		r.LimitMilliwatts = &p
	}
	if n, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); told(ret) {
		r.CorrectedErrors = &n
	}
	if n, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); told(ret) {
		r.UncorrectedErrors = &n
	}
	if _, _, pending, failed, ret := h.GetRemappedRows(); told(ret) {
		r.RowsPending, r.RowsFailed = pending, failed
	}
	return r
}

// wanted are the events that say something of a device's health.
const wanted = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeSingleBitEccErrorStorm

// listening is how long one call waits for an event, in milliseconds. The process can't end before it returns.
const listening = 500

func (s *system) wait() (Event, bool, error) {
	if s.events == nil && s.deaf == nil {
		s.deaf = s.listen()
	}
	if s.deaf != nil {
		return Event{}, false, s.deaf
	}
	data, ret := s.events.Wait(listening)
	switch ret {
	case nvml.SUCCESS:
		return s.event(data), true, nil
	case nvml.ERROR_TIMEOUT:
		return Event{}, false, nil
	}
	return Event{}, false, failure("wait for an event", ret)
}

// listen asks for the events of all devices. A device that has none is left out.
func (s *system) listen() error {
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return failure("make an event set", ret)
	}
	heard := 0
	for _, h := range s.handles {
		can, ret := h.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || can&wanted == 0 {
			continue
		}
		if ret := h.RegisterEvents(can&wanted, set); ret == nvml.SUCCESS {
			heard++
		}
	}
	if heard == 0 {
		_ = set.Free() // nothing depends on it
		return fmt.Errorf("gpu: none of %d devices has events", len(s.handles))
	}
	s.events = set
	return nil
}

// event explains what the library says.
func (s *system) event(data nvml.EventData) Event {
	e := Event{Index: -1}
	if data.Device != nil {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			e.UUID = uuid
		}
		if i, ret := data.Device.GetIndex(); ret == nvml.SUCCESS {
			e.Index = i
		}
	}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		e.XID = data.EventData
		e.Severity, e.Says = judge(e.XID)
	case nvml.EventTypeDoubleBitEccError:
		e.Severity, e.Says = Broken, "double-bit ECC error"
	default:
		e.Severity, e.Says = Notice, fmt.Sprintf("event of type %d", data.EventType)
		if data.EventType == nvml.EventTypeSingleBitEccErrorStorm {
			e.Says = "many single-bit ECC errors"
		}
	}
	return e
}

func failure(what string, ret nvml.Return) error {
	return fmt.Errorf("gpu: %s: NVML says %d", what, int(ret))
}
