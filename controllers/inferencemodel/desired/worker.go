package desired

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// Inputs are what a worker pod depends on beside its model.
type Inputs struct {
	// Image of the workers of this installation, CUDAImage of those that run a model on GPUs themselves, and when the
	// kubelet pulls them.
	Image, CUDAImage string
	PullPolicy       corev1.PullPolicy
	Pool             *v1alpha1.WorkerPool
	// Revision is what Revision returned for the same model and inputs.
	Revision string
	Ordinal  int
}

// Container is the name of the container that runs the worker.
const Container = "worker"

// graceMargin is how many seconds a worker has to end after its drain time.
const graceMargin = 30

// user is the unprivileged user and group of the worker's image.
const user int64 = 65532

// Worker returns the pod that worker in.Ordinal of m should be.
func Worker(m *v1alpha1.InferenceModel, in Inputs) *corev1.Pod {
	l := labels(m)
	maps.Copy(l, map[string]string{
		v1alpha1.LabelRevision: in.Revision,
		v1alpha1.LabelPool:     names.Label(in.Pool.Name),
	})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      WorkerName(m, in.Revision, in.Ordinal),
			Namespace: m.Namespace,
			Labels:    l,
			Annotations: map[string]string{
				"cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
				"kubectl.kubernetes.io/default-container":        Container,
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind(kind)),
			},
		},
		Spec: spec(m, in),
	}
}

func spec(m *v1alpha1.InferenceModel, in Inputs) corev1.PodSpec {
	p := in.Pool.Spec
	secrets := make([]corev1.LocalObjectReference, 0, len(p.ImagePullSecrets))
	for _, s := range p.ImagePullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: s.Name})
	}
	var runtimeClass *string
	if p.RuntimeClassName != "" {
		runtimeClass = &p.RuntimeClassName
	}
	return corev1.PodSpec{
		RuntimeClassName:              runtimeClass,
		ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: v1alpha1.GateInRing}},
		TerminationGracePeriodSeconds: new(drainSeconds(m) + graceMargin),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		NodeSelector:                  nodeSelector(in.Pool),
		Tolerations:                   tolerations(poolTolerations(in.Pool)),
		PriorityClassName:             p.PriorityClassName,
		ImagePullSecrets:              secrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(user),
			RunAsGroup:     new(user),
			FSGroup:        new(user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew:           1,
			TopologyKey:       corev1.LabelHostname,
			WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: Selector(m)},
		}},
		ServiceAccountName: p.ServiceAccountName,
		InitContainers:     initContainers(m, in),
		Containers:         []corev1.Container{container(m, in)},
		Volumes: slices.Concat(weightsVolumes(m, in.Pool), []corev1.Volume{
			{Name: tlsMount.Name, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: v1alpha1.SecretWorkerTLS}}},
		}, engineVolumes(m, in.Pool)),
	}
}

// tlsMount is where a worker finds its certificate.
var tlsMount = corev1.VolumeMount{Name: "tls", MountPath: v1alpha1.TLSDir, ReadOnly: true}

// lostNodeSeconds is how long a worker is kept after Kubernetes has marked its node as not ready or unreachable. Without
// a toleration of its own it would be 300: routers have long dropped it by then, and nothing would have replaced it.
const lostNodeSeconds int64 = 30

// tolerations are pool's, and those that bound the time on a lost node where the pool says nothing of that.
func tolerations(pool []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(pool)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		speaks := func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !slices.ContainsFunc(pool, speaks) {
			all = append(all, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostNodeSeconds),
			})
		}
	}
	return all
}

// container is the one that serves.
func container(m *v1alpha1.InferenceModel, in Inputs) corev1.Container {
	c := worker(m, in, Container)
	c.Args = append(c.Args, args(m, in)...)
	c.VolumeMounts = append(weightsMounts(m, true), tlsMount)
	c.ReadinessProbe, c.LivenessProbe = probe("/readyz", 1, 3), probe("/livez", 10, 6)
	if !beside(m) {
		c.EnvFrom = credentials(m)
		c.Env = append(c.Env, gpuEnv(in.Pool)...)
		c.VolumeMounts = append(c.VolumeMounts, kernelMounts(in.Pool)...)
	}
	return c
}

// worker is a container of our own program, with what it needs in every role.
func worker(m *v1alpha1.InferenceModel, in Inputs, name string) corev1.Container {
	resources := computing(m, in.Pool)
	if beside(m) {
		resources = workerResources()
	}
	return corev1.Container{
		Name:            name,
		Image:           image(m, in),
		ImagePullPolicy: in.PullPolicy,
		Args: []string{
			"--model=" + ModelName(m),
			"--model-uid=" + string(m.UID),
			"--revision=" + in.Revision,
		},
		Env: []corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"),
			fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("POD_UID", "metadata.uid"),
			{Name: "CPU_LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				ContainerName: name, Resource: "limits.cpu", Divisor: resource.MustParse("1")}}},
		},
		Ports: []corev1.ContainerPort{
			{Name: v1alpha1.PortHTTP, ContainerPort: v1alpha1.PortHTTPNumber, Protocol: corev1.ProtocolTCP},
			{Name: v1alpha1.PortGRPC, ContainerPort: v1alpha1.PortGRPCNumber, Protocol: corev1.ProtocolTCP},
		},
		Resources: resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// args are the flags of the worker that serves.
func args(m *v1alpha1.InferenceModel, in Inputs) []string {
	e := m.Spec.Engine
	driver := "llamacpp"
	if beside(m) {
		driver = "openai"
	}
	a := append([]string{"--driver=" + driver}, weightsArgs(m, in.Pool)...)
	if beside(m) {
		a = append(a, besideArgs(m)...)
	} else {
		a = append(a, "--kv-cache-type="+string(e.KVCacheType))
		a = append(a, gpuArgs(m, in.Pool)...)
	}
	if w := in.Pool.Spec.RingWeightPercent; w != 0 && w != v1alpha1.DefaultRingWeightPercent {
		a = append(a, "--ring-weight-percent="+strconv.Itoa(int(w)))
	}
	return append(a,
		"--context-tokens="+strconv.Itoa(int(e.ContextTokens)),
		"--max-sequences="+strconv.Itoa(int(e.MaxSequences)),
		"--drain-timeout="+strconv.FormatInt(drainSeconds(m), 10)+"s",
	)
}

// drainSeconds is how long a worker of m may finish its requests. The schema has the default; an object that was read
// without it gets the same.
func drainSeconds(m *v1alpha1.InferenceModel) int64 {
	if m.Spec.DrainTimeoutSeconds == nil {
		return 600
	}
	return *m.Spec.DrainTimeoutSeconds
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(v1alpha1.PortHTTP)}},
		PeriodSeconds:    period,
		TimeoutSeconds:   max(1, min(period, 5)),
		FailureThreshold: failures,
	}
}
