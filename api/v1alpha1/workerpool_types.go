package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPool says on what the workers of the models that refer to it run.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wp,categories=inference
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Accelerator",type=string,JSONPath=`.spec.accelerator.kind`
// +kubebuilder:printcolumn:name="Models",type=integer,JSONPath=`.status.models`
// +kubebuilder:printcolumn:name="Workers",type=integer,JSONPath=`.status.workers`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Product",type=string,JSONPath=`.spec.accelerator.product`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type WorkerPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is wanted.
	// +optional
	// +kubebuilder:default={}
	Spec WorkerPoolSpec `json:"spec,omitzero"`

	// status is what is. The manager writes it.
	// +optional
	Status WorkerPoolStatus `json:"status,omitzero"`
}

// WorkerPoolSpec says what a worker gets and where it may run. A change of it replaces the workers of the pool's models
// as their rollouts allow.
//
// +kubebuilder:validation:XValidation:rule="!has(self.accelerator) || !has(self.accelerator.kind) || self.accelerator.kind != 'NvidiaGPU' || !has(self.workerResources) || [has(self.accelerator.resourceName) ? self.accelerator.resourceName : 'nvidia.com/gpu'].all(r, (!has(self.workerResources.limits) || !(r in self.workerResources.limits)) && (!has(self.workerResources.requests) || !(r in self.workerResources.requests)))",message="workerResources must not name the accelerator's resource: how many GPUs a worker gets is the model's parallelism"
// +kubebuilder:validation:XValidation:rule="!has(self.accelerator) || !has(self.accelerator.product) || !has(self.nodeSelector) || !('nvidia.com/gpu.product' in self.nodeSelector) || self.nodeSelector['nvidia.com/gpu.product'] == self.accelerator.product",message="nodeSelector wants another nvidia.com/gpu.product than accelerator.product: remove one of the two"
type WorkerPoolSpec struct {
	// accelerator says what computes.
	// +optional
	// +kubebuilder:default={}
	Accelerator Accelerator `json:"accelerator,omitzero"`

	// workerResources are the requests and limits of each worker's container. The engine uses as many threads as the
	// CPU limit less one, and at least one. Defaults to requests of 500m CPU and 512Mi, and limits of 2 CPU and 2Gi.
	// +optional
	// +kubebuilder:default={requests: {cpu: "500m", memory: "512Mi"}, limits: {cpu: "2", memory: "2Gi"}}
	// +kubebuilder:validation:XValidation:rule="has(self.limits) && 'cpu' in self.limits && 'memory' in self.limits",message="workerResources.limits must name cpu and memory: the engine takes its number of threads from the one, and nodes stay alive by the other"
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="workerResources.claims are not supported: remove them"
	WorkerResources corev1.ResourceRequirements `json:"workerResources,omitzero"`

	// nodeSelector restricts workers to nodes with these labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations let workers onto tainted nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// runtimeClassName is the runtime class of the worker pods, for example nvidia where the toolkit is not the nodes' default
	// runtime.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// priorityClassName is the priority class of the worker pods.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// weightCache is where weights are kept that workers fetch themselves.
	// +optional
	// +kubebuilder:default={}
	WeightCache WeightCache `json:"weightCache,omitzero"`

	// ringWeightPercent is how many points a worker has on the routers' rings, and so which share of conversations and requests
	// it gets, in per cent of what the InferenceRouter's ring.virtualNodes says. All workers of a model run on one pool, so it
	// counts where pools replace each other: a model that moves to a pool of faster GPUs gives their workers more from the
	// first one on. Changing it replaces the workers.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	RingWeightPercent int32 `json:"ringWeightPercent,omitempty"`

	// serviceAccountName is the service account of the worker pods, for a workload identity that s3:// weights are fetched
	// by. No token of the Kubernetes API is mounted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// imagePullSecrets name Secrets with credentials for the worker's image and for weights by oci://.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []LocalName `json:"imagePullSecrets,omitempty"`
}

// DefaultRingWeightPercent is the weight of a worker on the rings where its pool says nothing.
const DefaultRingWeightPercent = 100

// WeightCacheKind names where fetched weights are kept.
// +kubebuilder:validation:Enum=EmptyDir;PersistentVolumeClaim
type WeightCacheKind string

// The kinds of weight cache.
const (
	// WeightCacheEmptyDir is on the node and goes with the pod: every worker fetches for itself.
	WeightCacheEmptyDir WeightCacheKind = "EmptyDir"
	// WeightCacheClaim is shared by all workers that mount the claim: each file is fetched once.
	WeightCacheClaim WeightCacheKind = "PersistentVolumeClaim"
)

// WeightCache is where weights are kept that workers fetch themselves: those by hf://, s3:// and https://.
//
// +kubebuilder:validation:XValidation:rule="(has(self.kind) && self.kind == 'PersistentVolumeClaim') == has(self.claimName)",message="weightCache.claimName is needed for kind PersistentVolumeClaim, and for no other"
type WeightCache struct {
	// kind of the cache.
	// +optional
	// +kubebuilder:default=EmptyDir
	Kind WeightCacheKind `json:"kind,omitempty"`

	// claimName is a PersistentVolumeClaim of the namespace. For several nodes it must be ReadWriteMany.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName,omitempty"`

	// sizeGibibytes bounds what is kept: files that no worker uses go first when room is needed. 0 is what the volume holds.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	SizeGibibytes *int32 `json:"sizeGibibytes,omitempty"`

	// allowNetworks are private networks that weights may be fetched from besides public addresses, for example
	// 10.20.0.0/16 with an object store of your own. Who may create models can read from what is named here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="weightCache.allowNetworks must be networks such as 10.20.0.0/16"
	AllowNetworks []string `json:"allowNetworks,omitempty"`
}

// AcceleratorKind names what computes.
// +kubebuilder:validation:Enum=CPU;NvidiaGPU
type AcceleratorKind string

// The kinds of accelerator.
const (
	// AcceleratorCPU computes on the node's processor.
	AcceleratorCPU AcceleratorKind = "CPU"
	// AcceleratorNvidiaGPU computes on whole GPUs, or MIG slices, of NVIDIA that a device plugin offers.
	AcceleratorNvidiaGPU AcceleratorKind = "NvidiaGPU"
)

// DefaultGPUResource is the extended resource of whole GPUs that NVIDIA's device plugin offers.
const DefaultGPUResource = "nvidia.com/gpu"

// Accelerator says what computes. How many GPUs a worker gets is the model's parallelism: tensor times pipeline.
//
// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind == 'NvidiaGPU' || (!has(self.product) && !has(self.memoryMebibytes) && !has(self.resourceName))",message="accelerator.product, memoryMebibytes and resourceName are for kind NvidiaGPU"
type Accelerator struct {
	// kind of accelerator.
	// +optional
	// +kubebuilder:default=CPU
	Kind AcceleratorKind `json:"kind,omitempty"`

	// product restricts workers to nodes whose label nvidia.com/gpu.product, which NVIDIA's feature discovery sets, has this
	// value, for example NVIDIA-H100-80GB-HBM3.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')",message="accelerator.product must be a label's value: letters, digits and . _ - between"
	Product string `json:"product,omitempty"`

	// memoryMebibytes is the memory of one GPU, by which the manager judges whether a model fits; a worker measures it
	// itself. Known products have a default.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1048576
	MemoryMebibytes int32 `json:"memoryMebibytes,omitempty"`

	// resourceName is the extended resource that workers ask for, for example nvidia.com/mig-3g.40gb. Defaults to
	// nvidia.com/gpu.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 244",message="accelerator.resourceName must be a name such as nvidia.com/gpu: a domain of at most 244 characters, a slash, and at most 63 letters, digits and . _ -"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('requests.') && !self.contains('kubernetes.io/')",message="accelerator.resourceName must be an extended resource's: not one of Kubernetes' own (kubernetes.io/…), nor one that begins with requests."
	ResourceName string `json:"resourceName,omitempty"`
}

// WorkerPoolStatus is what is.
type WorkerPoolStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// models is how many models refer to the pool.
	// +optional
	Models *int32 `json:"models,omitempty"`

	// workers is how many worker pods run on it.
	// +optional
	Workers *int32 `json:"workers,omitempty"`
}

// Reasons of Ready on a WorkerPool.
const (
	// ReasonInUse: models refer to the pool.
	ReasonInUse Reason = "InUse"
	// ReasonUnused: no model refers to the pool.
	ReasonUnused Reason = "Unused"
	// ReasonNoMatchingNode: no node has the labels of nodeSelector, so no worker can be placed.
	ReasonNoMatchingNode Reason = "NoMatchingNode"
	// ReasonNoAccelerator: no such node has GPUs of the product, or offers the resource, that accelerator names.
	ReasonNoAccelerator Reason = "NoAccelerator"
)

// WorkerPoolList is a list of WorkerPools.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items of the list.
	Items []WorkerPool `json:"items"`
}
