package desired

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// labelGPUProduct is the node's label that NVIDIA's feature discovery sets.
const labelGPUProduct = "nvidia.com/gpu.product"

// gpuTaint keeps pods that need no GPU off the nodes that have some, where an administrator has set it.
var gpuTaint = corev1.Toleration{Key: v1alpha1.DefaultGPUResource, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}

// driverCapabilities are what of the driver NVIDIA's container toolkit mounts: CUDA, and NVML.
var driverCapabilities = corev1.EnvVar{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "compute,utility"}

// onGPUs reports whether the workers of pool compute on GPUs.
func onGPUs(pool *v1alpha1.WorkerPool) bool {
	return pool.Spec.Accelerator.Kind == v1alpha1.AcceleratorNvidiaGPU
}

// gpus is how many GPUs a worker of m has on pool.
func gpus(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) int64 {
	switch p := m.Spec.Parallelism; {
	case !onGPUs(pool):
		return 0
	case p == nil:
		return 1
	default:
		return int64(deref(p.Tensor)) * int64(deref(p.Pipeline))
	}
}

// computing are the resources of the container that computes: the pool's, and its GPUs.
func computing(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) corev1.ResourceRequirements {
	r := *pool.Spec.WorkerResources.DeepCopy()
	n := gpus(m, pool)
	if n == 0 {
		return r
	}
	name := corev1.ResourceName(v1alpha1.DefaultGPUResource)
	if given := pool.Spec.Accelerator.ResourceName; given != "" {
		name = corev1.ResourceName(given)
	}
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return r
}

// nodeSelector is the pool's, and on GPUs their product.
func nodeSelector(pool *v1alpha1.WorkerPool) map[string]string {
	product := pool.Spec.Accelerator.Product
	if !onGPUs(pool) || product == "" {
		return pool.Spec.NodeSelector
	}
	s := maps.Clone(pool.Spec.NodeSelector)
	if s == nil {
		s = map[string]string{}
	}
	s[labelGPUProduct] = product
	return s
}

// poolTolerations are those that the pool names, and on GPUs that of their nodes' usual taint.
func poolTolerations(pool *v1alpha1.WorkerPool) []corev1.Toleration {
	ts := slices.Clone(pool.Spec.Tolerations)
	if onGPUs(pool) && !slices.Contains(ts, gpuTaint) {
		ts = append(ts, gpuTaint)
	}
	return ts
}

// gpuEnv are the variables of the container that computes.
func gpuEnv(pool *v1alpha1.WorkerPool) []corev1.EnvVar {
	if !onGPUs(pool) {
		return nil
	}
	return []corev1.EnvVar{driverCapabilities}
}

// gpuArgs tell a worker that runs the model itself to put all of it on its GPUs, and to fail where it can't.
func gpuArgs(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) []string {
	if !onGPUs(pool) {
		return nil
	}
	a := []string{"--gpu-layers=-1", "--require-gpu"}
	if p := m.Spec.Parallelism; p != nil && deref(p.Tensor) > 1 {
		a = append(a, "--gpu-split=row")
	}
	return a
}

// sharedVolume is memory that the processes of an engine on several GPUs exchange data in: a container's own /dev/shm has
// 64 MiB, which is too little for it. It counts towards the container's memory.
const sharedVolume = "engine-shm"

// shares reports whether m's engine needs sharedVolume.
func shares(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) bool {
	return beside(m) && gpus(m, pool) > 1
}

// kernelVolume is where CUDA keeps the kernels that it compiles for a GPU that the library has no machine code for, so that a
// container that starts again in its pod need not compile them again. The image of the workers on GPUs has CUDA write below /tmp.
const kernelVolume = "cuda-kernels"

// kernelMounts are for a worker that computes on GPUs itself.
func kernelMounts(pool *v1alpha1.WorkerPool) []corev1.VolumeMount {
	if !onGPUs(pool) {
		return nil
	}
	return []corev1.VolumeMount{{Name: kernelVolume, MountPath: "/tmp"}}
}

// kernelVolumes are what kernelMounts mount. CUDA bounds its cache by itself, to less than this.
func kernelVolumes(pool *v1alpha1.WorkerPool) []corev1.Volume {
	if !onGPUs(pool) {
		return nil
	}
	return []corev1.Volume{{Name: kernelVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(2<<30, resource.BinarySI)}}}}
}
