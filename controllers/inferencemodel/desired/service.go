package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// Service is the headless Service of m. Its EndpointSlices are how routers learn of workers, of those that are not
// ready too: whether a worker may serve is for the routers to find out.
func Service(m *v1alpha1.InferenceModel) *corev1ac.ServiceApplyConfiguration {
	port := func(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
		return corev1ac.ServicePort().WithName(name).WithPort(number).
			WithProtocol(corev1.ProtocolTCP).WithTargetPort(intstr.FromString(name))
	}
	return corev1ac.Service(ServiceName(m), m.Namespace).
		WithLabels(labels(m)).
		WithOwnerReferences(owner(m)).
		WithSpec(corev1ac.ServiceSpec().
			WithClusterIP(corev1.ClusterIPNone).
			WithPublishNotReadyAddresses(true).
			WithSelector(Selector(m)).
			WithPorts(port(v1alpha1.PortGRPC, v1alpha1.PortGRPCNumber), port(v1alpha1.PortHTTP, v1alpha1.PortHTTPNumber)))
}

// kind of the objects that all of this is made for.
const kind = "InferenceModel"

// owner makes m the controller of an object, which goes with it.
func owner(m *v1alpha1.InferenceModel) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(kind).WithName(m.Name).WithUID(m.UID).
		WithController(true).WithBlockOwnerDeletion(true)
}

// Selector selects the worker pods of m and of no other model, one with its name before or after it included.
func Selector(m *v1alpha1.InferenceModel) map[string]string {
	return map[string]string{v1alpha1.LabelModelUID: string(m.UID)}
}

// labels are on everything that is made for m.
func labels(m *v1alpha1.InferenceModel) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":     "ringfleet-worker",
		"app.kubernetes.io/instance": names.Label(m.Name),
		"app.kubernetes.io/part-of":  "ringfleet",
		v1alpha1.LabelManagedBy:      v1alpha1.ManagedBy,
		v1alpha1.LabelComponent:      "worker",
		v1alpha1.LabelModel:          names.Label(m.Name),
		v1alpha1.LabelModelUID:       string(m.UID),
	}
}
