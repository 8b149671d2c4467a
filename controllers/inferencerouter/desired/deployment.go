package desired

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

const (
	container = "router"
	// user is the numeric id that the image runs as.
	user int64 = 65532
	// graceBeyondDrain is how many seconds after its drain deadline a router may take to end.
	graceBeyondDrain int64 = 30
	defaultDrain     int64 = 600
	// settle is for how many seconds a router that must go still takes new requests, if it has as long.
	settle int64 = 5
	// memoryTarget keeps Go's heap below the container's memory limit.
	memoryTarget = "900MiB"
)

// Deployment is the router pods. Heartbeat, ring and timeouts are not part of it: routers read them from the object, so
// a change of those restarts nobody.
func Deployment(router *v1alpha1.InferenceRouter, s Settings) *appsac.DeploymentApplyConfiguration {
	annotations := map[string]string{"kubectl.kubernetes.io/default-container": container}
	return appsac.Deployment(Name(router), router.Namespace).
		WithLabels(labels(router)).WithOwnerReferences(owner(router)).
		WithSpec(appsac.DeploymentSpec().
			WithReplicas(Replicas(router)).
			WithRevisionHistoryLimit(2).
			WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(router))).
			WithStrategy(appsac.DeploymentStrategy().
				WithType(appsv1.RollingUpdateDeploymentStrategyType).
				WithRollingUpdate(appsac.RollingUpdateDeployment().
					WithMaxUnavailable(intstr.FromInt32(0)).
					WithMaxSurge(intstr.FromInt32(1)))).
			WithTemplate(coreac.PodTemplateSpec().
				WithLabels(labels(router)).
				WithAnnotations(annotations).
				WithSpec(podSpec(router, s))))
}

func drainSeconds(router *v1alpha1.InferenceRouter) int64 {
	if router.Spec.DrainTimeoutSeconds == nil {
		return defaultDrain
	}
	return *router.Spec.DrainTimeoutSeconds
}

func podSpec(router *v1alpha1.InferenceRouter, s Settings) *coreac.PodSpecApplyConfiguration {
	return coreac.PodSpec().
		WithServiceAccountName(Name(router)).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(drainSeconds(router) + graceBeyondDrain).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).WithRunAsUser(user).WithRunAsGroup(user).WithFSGroup(user).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithTopologySpreadConstraints(coreac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithMatchLabelKeys("pod-template-hash").
			WithLabelSelector(metaac.LabelSelector().WithMatchLabels(Selector(router)))).
		WithVolumes(volumes(router)...).
		WithContainers(routerContainer(router, s))
}

func routerContainer(router *v1alpha1.InferenceRouter, s Settings) *coreac.ContainerApplyConfiguration {
	image := router.Spec.Image
	if image == "" {
		image = s.Image
	}
	return coreac.Container().
		WithName(container).
		WithImage(image).
		WithImagePullPolicy(s.PullPolicy).
		WithArgs(
			"--namespace="+router.Namespace,
			"--router-name="+router.Name,
			fmt.Sprintf("--drain-settle=%ds", min(settle, drainSeconds(router))),
			fmt.Sprintf("--drain-timeout=%ds", drainSeconds(router)),
		).
		WithArgs(optionalArgs(router)...).
		WithEnv(
			coreac.EnvVar().WithName("POD_NAME").WithValueFrom(coreac.EnvVarSource().
				WithFieldRef(coreac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("metadata.name"))),
			coreac.EnvVar().WithName("GOMEMLIMIT").WithValue(memoryTarget),
		).
		WithPorts(
			port(v1alpha1.PortHTTP, v1alpha1.PortHTTPNumber),
			port(v1alpha1.PortGRPC, v1alpha1.PortGRPCNumber),
			port(v1alpha1.PortOps, v1alpha1.PortOpsNumber),
		).
		WithReadinessProbe(probe("/readyz", 1, 2)).
		WithLivenessProbe(probe("/livez", 10, 3)).
		WithResources(coreac.ResourceRequirements().
			WithRequests(corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("128Mi"),
			}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")})).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL"))).
		WithVolumeMounts(mounts(router)...)
}

// clientTLS is the name of the volume with the certificate that clients see.
const clientTLS = "client-tls"

func volumes(router *v1alpha1.InferenceRouter) []*coreac.VolumeApplyConfiguration {
	list := []*coreac.VolumeApplyConfiguration{secretVolume("tls", v1alpha1.SecretRouterTLS)}
	if router.Spec.TLS != nil {
		list = append(list, secretVolume(clientTLS, router.Spec.TLS.SecretName))
	}
	return list
}

func secretVolume(name, secret string) *coreac.VolumeApplyConfiguration {
	return coreac.Volume().WithName(name).WithSecret(coreac.SecretVolumeSource().WithSecretName(secret).WithDefaultMode(0o440))
}

func mounts(router *v1alpha1.InferenceRouter) []*coreac.VolumeMountApplyConfiguration {
	list := []*coreac.VolumeMountApplyConfiguration{
		coreac.VolumeMount().WithName("tls").WithMountPath(v1alpha1.TLSDir).WithReadOnly(true),
	}
	if router.Spec.TLS != nil {
		list = append(list, coreac.VolumeMount().WithName(clientTLS).WithMountPath(v1alpha1.ClientTLSDir).WithReadOnly(true))
	}
	return list
}

// optionalArgs are those of what an object may leave out.
func optionalArgs(router *v1alpha1.InferenceRouter) (args []string) {
	if router.Spec.TLS != nil {
		args = append(args, "--client-tls-dir="+v1alpha1.ClientTLSDir)
	}
	if router.Spec.Tracing != nil {
		args = append(args, "--otlp-endpoint="+router.Spec.Tracing.Endpoint)
	}
	return args
}
func port(name string, number int32) *coreac.ContainerPortApplyConfiguration {
	return coreac.ContainerPort().WithName(name).WithContainerPort(number).WithProtocol(corev1.ProtocolTCP)
}

func probe(path string, period, failures int32) *coreac.ProbeApplyConfiguration {
	return coreac.Probe().
		WithHTTPGet(coreac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(v1alpha1.PortOps)).WithScheme(corev1.URISchemeHTTP)).
		WithPeriodSeconds(period).
		WithTimeoutSeconds(2).
		WithFailureThreshold(failures)
}
