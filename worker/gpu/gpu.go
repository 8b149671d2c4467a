// Package gpu says which NVIDIA devices this process can see. No driver, no library and no device are normal: the answer
// is an empty list. It decides nothing and changes nothing on a device.
package gpu

// Device is one GPU.
type Device struct {
	// Index is the device's number for NVML and, without CUDA_VISIBLE_DEVICES, for CUDA.
	Index int
	// UUID names the device for as long as it lives, such as GPU-….
	UUID string
	// Name is the product, such as NVIDIA H100 80GB HBM3.
	Name string
	// MemoryBytes is the size of its memory.
	MemoryBytes uint64
}
