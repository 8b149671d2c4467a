package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InferenceRouter is the front door of a namespace: router pods that serve every model of it to OpenAI clients.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=ir,categories=inference
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.ready`,description="Routers that are Ready, of those wanted"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Cluster-IP",type=string,JSONPath=`.status.clusterIP`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type InferenceRouter struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is wanted.
	// +optional
	// +kubebuilder:default={}
	Spec InferenceRouterSpec `json:"spec,omitzero"`

	// status is what is. The manager writes it.
	// +optional
	Status InferenceRouterStatus `json:"status,omitzero"`
}

// InferenceRouterSpec says how a namespace's models are served. Routers follow changes of heartbeat, ring and timeouts
// without a restart.
type InferenceRouterSpec struct {
	// replicas is the number of router pods. Any number agree on where a conversation goes.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Replicas *int32 `json:"replicas,omitempty"`

	// image of the routers. Defaults to the router image of the installation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// service is how clients reach the routers.
	// +optional
	// +kubebuilder:default={}
	Service RouterService `json:"service,omitzero"`

	// heartbeat says when a worker counts as lost and when as back.
	// +optional
	// +kubebuilder:default={intervalMilliseconds: 1000, timeoutMilliseconds: 500}
	Heartbeat Heartbeat `json:"heartbeat,omitzero"`

	// ring says how keys are spread over workers.
	// +optional
	// +kubebuilder:default={}
	Ring Ring `json:"ring,omitzero"`

	// timeouts bound how long a request may wait for its worker.
	// +optional
	// +kubebuilder:default={}
	Timeouts Timeouts `json:"timeouts,omitzero"`

	// drainTimeoutSeconds is how long a router that must go may finish the streams it carries.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainTimeoutSeconds *int64 `json:"drainTimeoutSeconds,omitempty"`
}

// RouterService is the Service in front of the routers.
type RouterService struct {
	// type of the Service.
	// +optional
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// port of the Service.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// annotations of the Service, for load balancers.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Heartbeat says when a worker counts as lost and when as back. No report within interval and timeout is a failure, and
// so is a broken stream; at most one failure and one success count in an interval.
//
// +kubebuilder:validation:XValidation:rule="self.timeoutMilliseconds <= self.intervalMilliseconds",message="heartbeat.timeoutMilliseconds must be less than or equal to heartbeat.intervalMilliseconds: lower the one or raise the other"
type Heartbeat struct {
	// intervalMilliseconds is the time between two reports of a worker.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=60000
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`

	// timeoutMilliseconds is how late a report may be.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=60000
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`

	// failuresToDrop is how many failures in a row take a worker out of the ring.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailuresToDrop int32 `json:"failuresToDrop,omitempty"`

	// successesToAdmit is how many good reports in a row bring a worker into the ring.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessesToAdmit int32 `json:"successesToAdmit,omitempty"`
}

// Ring says how keys are spread over workers.
type Ring struct {
	// virtualNodes is how many points of the ring each worker has. More of them spread keys more evenly.
	// +optional
	// +kubebuilder:default=150
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	VirtualNodes int32 `json:"virtualNodes,omitempty"`
}

// Timeouts bound how long a request may wait for its worker. There is no limit on the whole: a stream that moves goes on.
type Timeouts struct {
	// firstByteSeconds is how long a worker may take until the first token, its own queue included.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	FirstByteSeconds int32 `json:"firstByteSeconds,omitempty"`

	// idleSeconds is how long a stream may stand still between two tokens.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IdleSeconds int32 `json:"idleSeconds,omitempty"`
}

// InferenceRouterStatus is what is.
type InferenceRouterStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Progressing.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of router pods.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// readyReplicas is how many of them are Ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// ready is readyReplicas of the number wanted, as in 2/2.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	Ready string `json:"ready,omitempty"`

	// selector selects the router pods, for autoscalers.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`

	// url is the base URL for OpenAI clients inside the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url,omitempty"`

	// clusterIP is the address of the routers' Service.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterIP string `json:"clusterIP,omitempty"`
}

// Reasons of Ready and Progressing on an InferenceRouter.
const (
	// ReasonRouting: at least one router serves, and as many as wanted.
	ReasonRouting Reason = "Routing"
	// ReasonRoutersStarting: router pods are on their way.
	ReasonRoutersStarting Reason = "RoutersStarting"
	// ReasonNotServing: no router is wanted, or none is Ready.
	ReasonNotServing Reason = "NotServing"
	// ReasonRouterFailed: a router's process ends again and again.
	ReasonRouterFailed Reason = "RouterFailed"
)

// InferenceRouterList is a list of InferenceRouters.
//
// +kubebuilder:object:root=true
type InferenceRouterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items of the list.
	Items []InferenceRouter `json:"items"`
}
