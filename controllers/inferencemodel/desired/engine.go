package desired

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/ringfleet/ringfleet/api/engineargs"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// The containers of a pod whose engine has a container of its own: one that fetches weights and ends, and the engine, a
// sidecar that Kubernetes stops only after the worker has ended.
const (
	EngineContainer = "engine"
	FetchContainer  = "weights"
)

// beside reports whether m's engine runs in a container of its own.
func beside(m *v1alpha1.InferenceModel) bool {
	return m.Spec.Engine.Kind != "" && m.Spec.Engine.Kind != v1alpha1.EngineLlamaCpp
}

// EngineArgs are the arguments of m's engine, or nil where it has no container of its own.
func EngineArgs(m *v1alpha1.InferenceModel) []string {
	if !beside(m) {
		return nil
	}
	return engineargs.Args(engineargs.Kind(m.Spec.Engine.Kind), settings(m))
}

// settings are what m's engine is told.
func settings(m *v1alpha1.InferenceModel) engineargs.Settings {
	e := m.Spec.Engine
	s := engineargs.Settings{
		Model: v1alpha1.FetchedWeights, Name: ModelName(m), Port: v1alpha1.EnginePort,
		ContextTokens: int(e.ContextTokens), MaxSequences: int(e.MaxSequences), DType: e.DType,
		NoPrefixCaching: e.PrefixCaching == v1alpha1.PrefixCachingDisabled, Extra: e.Args,
	}
	if e.KVCacheType == v1alpha1.KVCacheQ8 {
		s.KVCache = engineargs.Q8
	}
	if !Fetched(m.Spec.Weights) {
		s.Model = path.Join(v1alpha1.WeightsDir, m.Spec.Weights.File)
	}
	if p := m.Spec.Parallelism; p != nil {
		s.TensorParallel, s.PipelineParallel = int(deref(p.Tensor)), int(deref(p.Pipeline))
	}
	if n := len(m.Spec.Adapters); n > 0 {
		s.LoRA, s.MaxAdapters, s.MaxAdapterRank = true, min(n, maxAdapters), maxAdapterRank
	}
	return s
}

func deref(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// initContainers are what runs before and beside the worker.
func initContainers(m *v1alpha1.InferenceModel, in Inputs) []corev1.Container {
	if !beside(m) {
		return nil
	}
	var list []corev1.Container
	if fetches(m) {
		list = append(list, fetcher(m, in))
	}
	return append(list, engineContainer(m, in))
}

// fetcher brings weights and adapters and ends. It serves the worker's contract meanwhile, so that routers and status see how far it
// is.
func fetcher(m *v1alpha1.InferenceModel, in Inputs) corev1.Container {
	c := worker(m, in, FetchContainer)
	c.Args = append(c.Args, "--fetch-only")
	c.Args = append(c.Args, weightsArgs(m, in.Pool)...)
	c.EnvFrom = credentials(m)
	c.VolumeMounts = append(weightsMounts(m, true), tlsMount)
	return c
}

// engineContainer is the engine. It gets the pool's resources and GPUs; its own image may need to write, below /tmp.
func engineContainer(m *v1alpha1.InferenceModel, in Inputs) corev1.Container {
	e := m.Spec.Engine
	kind := engineargs.Kind(e.Kind)
	c := corev1.Container{
		Name: EngineContainer, Image: e.Image, ImagePullPolicy: in.PullPolicy,
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Command:       e.Command, Args: EngineArgs(m),
		Resources:    computing(m, in.Pool),
		VolumeMounts: append(weightsMounts(m, false), corev1.VolumeMount{Name: tmpVolume, MountPath: "/tmp"}),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			RunAsNonRoot:             new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if shares(m, in.Pool) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: sharedVolume, MountPath: "/dev/shm"})
	}
	if len(c.Command) == 0 {
		c.Command = engineargs.Command(kind)
	}
	c.Env = []corev1.EnvVar{{Name: "HOME", Value: "/tmp"}} // the user of restricted pods has none in most images
	c.Env = append(c.Env, gpuEnv(in.Pool)...)
	for _, v := range engineargs.Env(kind, settings(m)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	for _, v := range e.Env {
		c.Env = append(c.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	return c
}

// tmpVolume is the engine's scratch space.
const tmpVolume = "engine-tmp"

// engineVolumes are the volumes that an engine needs besides its weights.
func engineVolumes(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) []corev1.Volume {
	if !beside(m) {
		return kernelVolumes(pool)
	}
	volumes := []corev1.Volume{{Name: tmpVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if shares(m, pool) {
		volumes = append(volumes, corev1.Volume{Name: sharedVolume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	}
	return volumes
}

// besideArgs tell a worker of the engine beside it.
func besideArgs(m *v1alpha1.InferenceModel) []string {
	a := []string{
		fmt.Sprintf("--engine-url=http://127.0.0.1:%d", v1alpha1.EnginePort),
		"--engine-kind=" + string(m.Spec.Engine.Kind),
	}
	if m.Spec.Engine.Kind == v1alpha1.EngineVLLM || m.Spec.Engine.Kind == v1alpha1.EngineSGLang {
		a = append(a, "--engine-priorities") // engineargs starts both so that they heed them
	}
	if len(m.Spec.Adapters) > 0 {
		a = append(a, "--engine-adapters")
	}
	if m.Spec.Engine.Kind != v1alpha1.EngineOpenAI {
		a = append(a, "--engine-model="+ModelName(m)) // what engineargs has it serve the model as
	}
	return a
}

// workerResources are those of a worker whose engine has a container of its own: it relays text, and fetches weights.
func workerResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")},
	}
}
