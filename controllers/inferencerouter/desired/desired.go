// Package desired says what an InferenceRouter should consist of: pure functions from the object and the installation's
// settings to apply configurations that hold only the fields which the manager owns. It never reads or writes a cluster.
package desired

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// Component is the value of the component label on everything here.
const Component = "router"

// Settings of the installation.
type Settings struct {
	// Image of routers whose object names none.
	Image string
	// PullPolicy of the image.
	PullPolicy corev1.PullPolicy
	// ClusterRole that lets a router read its namespace's models and endpoints.
	ClusterRole string
}

// Selector selects the pods of router.
func Selector(router *v1alpha1.InferenceRouter) map[string]string {
	return map[string]string{
		v1alpha1.LabelComponent: Component,
		v1alpha1.LabelRouter:    names.Label(router.Name),
	}
}

func labels(router *v1alpha1.InferenceRouter) map[string]string {
	l := Selector(router)
	l["app.kubernetes.io/name"] = "ringfleet-router"
	l["app.kubernetes.io/instance"] = l[v1alpha1.LabelRouter]
	l["app.kubernetes.io/part-of"] = "ringfleet"
	l[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	return l
}

func owner(router *v1alpha1.InferenceRouter) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("InferenceRouter").
		WithName(router.Name).WithUID(router.UID).
		WithController(true).WithBlockOwnerDeletion(true)
}

// Replicas is how many router pods are wanted.
func Replicas(router *v1alpha1.InferenceRouter) int32 {
	if router.Spec.Replicas == nil {
		return 2
	}
	return *router.Spec.Replicas
}

// Port is the Service's port for clients.
func Port(router *v1alpha1.InferenceRouter) int32 {
	if router.Spec.Service.Port == 0 {
		return 80
	}
	return router.Spec.Service.Port
}

// URL is the base URL for OpenAI clients inside the cluster.
func URL(router *v1alpha1.InferenceRouter) string {
	host := Name(router) + "." + router.Namespace + ".svc"
	scheme, usual := "http", int32(80)
	if router.Spec.TLS != nil {
		scheme, usual = "https", 443
	}
	if port := Port(router); port != usual {
		host = fmt.Sprintf("%s:%d", host, port)
	}
	return scheme + "://" + host + "/v1"
}

// Service is how clients reach the routers.
func Service(router *v1alpha1.InferenceRouter) *coreac.ServiceApplyConfiguration {
	kind := router.Spec.Service.Type
	if kind == "" {
		kind = corev1.ServiceTypeClusterIP
	}
	s := coreac.Service(Name(router), router.Namespace).
		WithLabels(labels(router)).WithOwnerReferences(owner(router)).
		WithSpec(coreac.ServiceSpec().
			WithType(kind).
			WithSelector(Selector(router)).
			WithPorts(coreac.ServicePort().
				WithName(v1alpha1.PortHTTP).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(Port(router)).
				WithTargetPort(intstr.FromString(v1alpha1.PortHTTP))))
	if len(router.Spec.Service.Annotations) > 0 {
		s.WithAnnotations(router.Spec.Service.Annotations)
	}
	return s
}

// ServiceAccount is who the routers are to the API server. Only pods that ask for it get its token.
func ServiceAccount(router *v1alpha1.InferenceRouter) *coreac.ServiceAccountApplyConfiguration {
	return coreac.ServiceAccount(Name(router), router.Namespace).
		WithLabels(labels(router)).WithOwnerReferences(owner(router)).
		WithAutomountServiceAccountToken(false)
}

// RoleBinding lets the routers read what they serve, in their own namespace.
func RoleBinding(router *v1alpha1.InferenceRouter, s Settings) *rbacac.RoleBindingApplyConfiguration {
	return rbacac.RoleBinding(Name(router), router.Namespace).
		WithLabels(labels(router)).WithOwnerReferences(owner(router)).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(s.ClusterRole)).
		WithSubjects(rbacac.Subject().WithKind("ServiceAccount").WithName(Name(router)).WithNamespace(router.Namespace))
}

// DisruptionBudget keeps node drains from taking two routers at once, or is nil when there is only one: a budget would
// then hold up the drain for ever. Routers that are broken anyway may always go.
func DisruptionBudget(router *v1alpha1.InferenceRouter) *policyac.PodDisruptionBudgetApplyConfiguration {
	if Replicas(router) < 2 {
		return nil
	}
	return policyac.PodDisruptionBudget(Name(router), router.Namespace).
		WithLabels(labels(router)).WithOwnerReferences(owner(router)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(router))))
}
