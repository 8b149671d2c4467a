package memoryplan

import "strings"

// Accelerator is a GPU that can be bought.
type Accelerator struct {
	// Name is as the label nvidia.com/gpu.product of a node has it.
	Name string
	// MiB is the size of its memory as the driver reports it, which is what the label nvidia.com/gpu.memory has: some
	// hundred MiB less than the chips hold, where error correction takes its part.
	MiB uint64
}

// Accelerators are GPUs by the size of their memory, the smallest first. A partition of one (MIG) has a size of its own.
var Accelerators = []Accelerator{
	{"Tesla-T4", 15360}, {"NVIDIA-A10", 23028}, {"NVIDIA-A10G", 23028}, {"NVIDIA-L4", 23034}, {"NVIDIA-GeForce-RTX-4090", 24564},
	{"NVIDIA-A100-SXM4-40GB", 40960}, {"NVIDIA-L40S", 46068}, {"NVIDIA-H100-80GB-HBM3", 81559}, {"NVIDIA-H100-PCIe", 81559},
	{"NVIDIA-A100-SXM4-80GB", 81920}, {"NVIDIA-A100-80GB-PCIe", 81920}, {"NVIDIA-H100-NVL", 95830}, {"NVIDIA-H200", 143771},
	{"NVIDIA-B200", 183359},
}

// shared is what the feature discovery puts behind the product where several pods share a GPU.
const shared = "-SHARED"

// Known returns the GPU that a node's label nvidia.com/gpu.product names; ok is false for one that isn't among Accelerators, as
// for a partition.
func Known(product string) (a Accelerator, ok bool) {
	product = strings.TrimSuffix(product, shared)
	for _, a := range Accelerators {
		if strings.EqualFold(a.Name, product) {
			return a, true
		}
	}
	return Accelerator{}, false
}
