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

// InferenceRouterSpec says how a namespace's models are served. Routers follow every change but those of image, tls, tracing and
// drainTimeoutSeconds without a restart.
//
// +kubebuilder:validation:XValidation:rule="!has(self.defaultTier) || size(self.defaultTier) == 0 || (has(self.tiers) && self.tiers.exists(t, t.name == self.defaultTier))",message="defaultTier must be the name of one of tiers"
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

	// tls serves clients over TLS. Without it they are served without.
	// +optional
	TLS *RouterTLS `json:"tls,omitempty"`

	// ring says how keys are spread over workers.
	// +optional
	// +kubebuilder:default={}
	Ring Ring `json:"ring,omitzero"`

	// placement says which worker a request goes to.
	// +optional
	// +kubebuilder:default={}
	Placement Placement `json:"placement,omitzero"`

	// resume says whether an answer that streams goes on at another worker when its own is lost.
	// +optional
	// +kubebuilder:default=Enabled
	Resume ResumeMode `json:"resume,omitempty"`

	// auth says who a client is taken for.
	// +optional
	// +kubebuilder:default={}
	Auth Auth `json:"auth,omitzero"`

	// tracing tells a collector of OpenTelemetry how requests went.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`

	// tiers are the classes of requests, by their names. Without any there is one of priority 0 that queues.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Tiers []Tier `json:"tiers,omitempty"`

	// defaultTier is the tier of requests that name none. By default it is the one with the least priority.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DefaultTier string `json:"defaultTier,omitempty"`

	// admission says from which use of the KV cache on requests wait or are refused.
	// +optional
	// +kubebuilder:default={admitPercent: 90, refusePercent: 95}
	Admission Admission `json:"admission,omitzero"`

	// queue bounds the requests that wait for room, for each model and router.
	// +optional
	// +kubebuilder:default={}
	Queue Queue `json:"queue,omitzero"`

	// hold bounds the requests that wait for a model without workers, for each model and router.
	// +optional
	// +kubebuilder:default={}
	Hold Hold `json:"hold,omitzero"`

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

// RouterTLS is the certificate that clients see.
type RouterTLS struct {
	// secretName is the Secret of type kubernetes.io/tls with the certificate. Routers follow its changes without a restart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
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

	// maxLoadPercent is the most requests that a worker may have, in per cent of the mean of the model's workers. A request
	// whose worker has as many goes to another. Less spreads load more evenly and keeps fewer conversations at their cache.
	// +optional
	// +kubebuilder:default=125
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MaxLoadPercent int32 `json:"maxLoadPercent,omitempty"`
}

// Placement says which worker a request goes to.
type Placement struct {
	// policy chooses among the workers that may take a request: LeastPredictedTTFT the one with the least time to the first
	// token, by its queue, its speed and what it has cached; ConsistentHash the first on the ring's walk from the
	// conversation's key; LeastLoaded the one with the fewest requests; RoundRobin one after the other.
	// +optional
	// +kubebuilder:default=LeastPredictedTTFT
	Policy PlacementPolicy `json:"policy,omitempty"`
}

// PlacementPolicy is the name of a policy.
//
// +kubebuilder:validation:Enum=LeastPredictedTTFT;ConsistentHash;LeastLoaded;RoundRobin
type PlacementPolicy string

// The policies.
const (
	PlacementLeastPredictedTTFT PlacementPolicy = "LeastPredictedTTFT"
	PlacementConsistentHash     PlacementPolicy = "ConsistentHash"
	PlacementLeastLoaded        PlacementPolicy = "LeastLoaded"
	PlacementRoundRobin         PlacementPolicy = "RoundRobin"
)

// ResumeMode says whether answers go on at another worker.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type ResumeMode string

// The modes.
const (
	ResumeEnabled  ResumeMode = "Enabled"
	ResumeDisabled ResumeMode = "Disabled"
)

// Auth says who a client is taken for.
type Auth struct {
	// mode None takes all clients for one tenant of the default tier. TrustedHeaders believes the headers
	// X-Ringfleet-Tier and X-Ringfleet-Tenant: use it only behind a gateway that sets or removes them.
	// +optional
	// +kubebuilder:default=None
	Mode AuthMode `json:"mode,omitempty"`

	// tenantCache Shared lets tenants share what workers have cached of equal prompts, which also tells one how far its
	// prompt begins like another's. Isolated keeps them apart; each computes its own prompts.
	// +optional
	// +kubebuilder:default=Shared
	TenantCache TenantCache `json:"tenantCache,omitempty"`
}

// TenantCache says whether tenants share the workers' caches of prompts.
//
// +kubebuilder:validation:Enum=Shared;Isolated
type TenantCache string

// What tenants may do.
const (
	TenantCacheShared   TenantCache = "Shared"
	TenantCacheIsolated TenantCache = "Isolated"
)

// Tracing is where traces go.
type Tracing struct {
	// endpoint is the URL of a collector that speaks OTLP by gRPC, such as http://collector.observability:4317.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	Endpoint string `json:"endpoint,omitempty"`
}

// AuthMode is how a router knows its clients.
//
// +kubebuilder:validation:Enum=None;TrustedHeaders
type AuthMode string

// The modes.
const (
	AuthNone           AuthMode = "None"
	AuthTrustedHeaders AuthMode = "TrustedHeaders"
)

// Tier is a class of requests.
type Tier struct {
	// name of the tier.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// priority orders requests that wait: those with the greatest start first, and workers preempt those with the least first.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`

	// whenBusy says what happens from admission.admitPercent on: First enters all the same, Queue waits, Refuse is refused
	// with status 429. From admission.refusePercent on First waits too.
	// +optional
	// +kubebuilder:default=Queue
	WhenBusy WhenBusy `json:"whenBusy,omitempty"`

	// maxQueueSeconds is how long a request may wait for room before it is refused with status 429.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxQueueSeconds *int32 `json:"maxQueueSeconds,omitempty"`
}

// WhenBusy is what a tier's requests do on a busy model.
//
// +kubebuilder:validation:Enum=First;Queue;Refuse
type WhenBusy string

// What they may do.
const (
	WhenBusyFirst  WhenBusy = "First"
	WhenBusyQueue  WhenBusy = "Queue"
	WhenBusyRefuse WhenBusy = "Refuse"
)

// Admission says from which use of the KV cache on, as the mean of a model's workers, requests wait or are refused, and from
// which on the figures of a model say that it fills.
//
// +kubebuilder:validation:XValidation:rule="!has(self.watchPercent) || !has(self.scaleOutPercent) || self.watchPercent < self.scaleOutPercent",message="admission.watchPercent must be less than admission.scaleOutPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.watchPercent) || self.watchPercent < self.admitPercent",message="admission.watchPercent must be less than admission.admitPercent"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleOutPercent) || self.scaleOutPercent < self.admitPercent",message="admission.scaleOutPercent must be less than admission.admitPercent"
// +kubebuilder:validation:XValidation:rule="self.admitPercent <= self.refusePercent",message="admission.admitPercent must be less than or equal to admission.refusePercent"
type Admission struct {
	// watchPercent is where a model's band becomes Watch: all requests enter, and people look. Where it is absent it is 75,
	// or scaleOutPercent if that is less.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	WatchPercent int32 `json:"watchPercent,omitempty"`

	// scaleOutPercent is where a model's band becomes ScaleOut: all requests enter, and more workers would help. It tells of
	// it and adds none: an autoscaler goes by the model's own spec.scaling. Where it is absent it is 80, or watchPercent if
	// that is more, or admitPercent if that is less.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ScaleOutPercent int32 `json:"scaleOutPercent,omitempty"`

	// admitPercent is where each tier's whenBusy begins to count.
	// +optional
	// +kubebuilder:default=90
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	AdmitPercent int32 `json:"admitPercent,omitempty"`

	// refusePercent is where nobody enters any more: tiers that would enter wait, and those that would wait do.
	// +optional
	// +kubebuilder:default=95
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	RefusePercent int32 `json:"refusePercent,omitempty"`
}

// Queue bounds the requests that wait for room.
type Queue struct {
	// maxRequests is how many may wait. What comes then is refused with status 429.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxRequests *int32 `json:"maxRequests,omitempty"`
}

// Hold bounds the requests that wait for a model without workers.
type Hold struct {
	// maxRequests is how many may wait. What comes then gets status 503.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxRequests *int32 `json:"maxRequests,omitempty"`

	// maxSeconds is how long one may wait. Most clients give up after 600 seconds.
	// +optional
	// +kubebuilder:default=570
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxSeconds *int32 `json:"maxSeconds,omitempty"`
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
