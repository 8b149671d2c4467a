// Package gpu says which NVIDIA devices this process can see, how they are used and whether they are sound. One goroutine
// asks NVML, so that nobody else waits for a driver that hangs, and listens for the driver's error events. No driver, no
// library and no device are normal: everything is empty then, and healthy. The package changes nothing on a device and
// decides nothing about the worker: whether an unhealthy device ends it is the agent's decision.
package gpu

import "time"

// Device is one GPU.
type Device struct {
	// Index is the device's number for NVML and, without CUDA_VISIBLE_DEVICES, for CUDA.
	Index int
	// UUID names the device for as long as it lives, such as GPU-….
	UUID string
	// Name is the product, such as NVIDIA H100 80GB HBM3.
	Name string
	// MemoryBytes is the size of its memory; 0 where it isn't told, as of a device of which the container has only parts.
	MemoryBytes uint64
	// Parts are the MIG instances of the device that this process can see.
	Parts []Part
}

// Part is one MIG instance.
type Part struct {
	// UUID names the instance, such as MIG-….
	UUID string
	// Name is the profile with the product, such as NVIDIA H100 80GB HBM3 MIG 3g.40gb.
	Name        string
	MemoryBytes uint64
	UsedBytes   uint64
	// GPUInstance and ComputeInstance are the driver's numbers, as its events and logs have them.
	GPUInstance, ComputeInstance int
}

// Reading is a device and how it was when it was last asked. What the device doesn't tell is nil, never zero.
type Reading struct {
	Device
	// UsedBytes of its memory, by all processes.
	UsedBytes *uint64
	// Busy is the percentage of the last sample period in which a kernel ran, MemoryBusy that in which its memory was used.
	Busy, MemoryBusy *uint32
	Celsius          *uint32
	// Milliwatts are drawn, of the limit that is in force.
	Milliwatts, LimitMilliwatts *uint32
	// CorrectedErrors and UncorrectedErrors of its memory since the driver was loaded.
	CorrectedErrors, UncorrectedErrors *uint64
	// RowsFailed: rows of its memory could not be replaced by spare ones. RowsPending: some will be at the next reset.
	RowsFailed, RowsPending bool
	// Failure is why the device can't be used at all, such as "is lost"; "" for none.
	Failure string
	// XIDs counts the driver's error events by their code since Open.
	XIDs map[uint64]uint64
}

// Event is something that the driver reported of a device.
type Event struct {
	At time.Time
	// Index and UUID of the device; -1 and "" where the driver doesn't say.
	Index int
	UUID  string
	// XID is the driver's error code; 0 for errors of the memory that come without one.
	XID uint64
	// Severity is how bad it is, and Says what it means.
	Severity Severity
	Says     string
}

// Severity is what an event means for the device.
type Severity string

// The severities.
const (
	// Program: the program did something wrong, or was ended; the device is sound.
	Program Severity = "Program"
	// Notice: the device goes on, and somebody should look at it.
	Notice Severity = "Notice"
	// Broken: nothing that runs on the device can be trusted until it is reset or replaced.
	Broken Severity = "Broken"
)

// Snapshot is everything as it was at a time.
type Snapshot struct {
	At      time.Time
	Devices []Reading
	// Events are the last ones, the oldest first, at most Kept.
	Events []Event
}

// Kept is how many events are kept.
const Kept = 32

// driver is NVML as far as it is needed here.
type driver interface {
	// devices lists what there is.
	devices() ([]Device, error)
	// read asks a device how it is.
	read(d Device) Reading
	// wait returns the next event, or ok false after a while without one. An error means that there are no events for now.
	wait() (e Event, ok bool, err error)
	close() error
}
