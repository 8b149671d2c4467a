package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InferenceModel is one model that a fleet serves: where its weights are, which engine runs it and how many workers.
// It alone is enough: the WorkerPool and the InferenceRouter that it needs are created when its namespace has none.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=im,categories=inference
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="In-Ring",type=string,JSONPath=`.status.inRing`,description="Workers that get requests, of those wanted"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.servedNames[0]`,priority=1
// +kubebuilder:printcolumn:name="Weights",type=string,JSONPath=`.spec.weights.uri`,priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type InferenceModel struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is wanted.
	// +required
	Spec InferenceModelSpec `json:"spec,omitzero"`

	// status is what is. The manager writes it.
	// +optional
	Status InferenceModelStatus `json:"status,omitzero"`
}

// InferenceModelSpec says what is served and by how many workers.
type InferenceModelSpec struct {
	// modelName is what clients ask for in `model`, for example HuggingFaceTB/SmolLM2-135M-Instruct. Defaults to the
	// object's name. When two models of a namespace claim one name, the older object has it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?$')",message="modelName must start and end with a letter or digit and may hold letters, digits and . _ : / @ + - between"
	ModelName string `json:"modelName,omitempty"`

	// aliases are further names for clients to ask for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?$')",message="an alias must start and end with a letter or digit and may hold letters, digits and . _ : / @ + - between"
	Aliases []string `json:"aliases,omitempty"`

	// replicas is how many workers to run now, within scaling's bounds. Leave it to `kubectl scale` or an autoscaler.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// weights says where the model's weights are.
	// +required
	Weights Weights `json:"weights,omitzero"`

	// engine says what runs the model, and how much of it at once.
	// +optional
	// +kubebuilder:default={}
	Engine Engine `json:"engine,omitzero"`

	// poolRef names the WorkerPool whose workers serve the model. Defaults to the pool `default`, which is created when
	// absent.
	// +optional
	// +kubebuilder:default={name: default}
	PoolRef LocalName `json:"poolRef,omitzero"`

	// scaling bounds the number of workers.
	// +optional
	// +kubebuilder:default={minReplicas: 1, maxReplicas: 4}
	Scaling Scaling `json:"scaling,omitzero"`

	// rollout says how workers are replaced when a change needs new ones.
	// +optional
	// +kubebuilder:default={maxSurge: 1, maxUnavailable: 0}
	Rollout Rollout `json:"rollout,omitzero"`

	// drainTimeoutSeconds is how long a worker that must go may finish the requests it runs. Changing it replaces no
	// worker; it holds for workers created from then on.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainTimeoutSeconds *int64 `json:"drainTimeoutSeconds,omitempty"`
}

// Weights says where a model's weights are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.digest) || !self.uri.startsWith('oci://') || !self.uri.contains('@')",message="the uri already names a digest: remove weights.digest, or the @sha256:… from the uri"
type Weights struct {
	// uri is where the weights are: oci://REGISTRY/REPOSITORY:TAG, an image that the kubelet mounts as a volume, or
	// pvc://CLAIM/FOLDER, a folder of a PersistentVolumeClaim in the model's namespace.
	// +required
	// +kubebuilder:validation:MinLength=7
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^oci://[a-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?$') || self.matches('^pvc://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[A-Za-z0-9][A-Za-z0-9._-]*)*$')",message="weights.uri must be oci://REGISTRY/REPOSITORY[:TAG|@sha256:…] or pvc://CLAIM[/FOLDER]"
	URI string `json:"uri,omitempty"`

	// file is the path of the GGUF file below the volume's root, for example models/x.gguf. Defaults to the only file
	// whose name ends in .gguf.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$') && !self.matches('(^|/)\\\\.\\\\.?(/|$)')",message="weights.file must be a relative path without . or .. parts"
	File string `json:"file,omitempty"`

	// digest is what the weights must be: of the image's manifest for oci, of the GGUF file otherwise. A worker loads
	// nothing else.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="weights.digest must be sha256: and 64 lower-case hex digits"
	Digest string `json:"digest,omitempty"`
}

// EngineKind names an engine.
// +kubebuilder:validation:Enum=LlamaCpp
type EngineKind string

// EngineLlamaCpp is llama.cpp's library inside the worker's own process.
const EngineLlamaCpp EngineKind = "LlamaCpp"

// KVCacheType is the type of the numbers in the KV cache.
// +kubebuilder:validation:Enum=F16;Q8
type KVCacheType string

// The types of KV cache. Q8 needs about half of the memory of F16.
const (
	KVCacheF16 KVCacheType = "F16"
	KVCacheQ8  KVCacheType = "Q8"
)

// Engine says what runs the model, and how much of it at once.
type Engine struct {
	// kind of engine.
	// +optional
	// +kubebuilder:default=LlamaCpp
	Kind EngineKind `json:"kind,omitempty"`

	// image of the workers. Defaults to the worker image of the installation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// contextTokens is the room of the KV cache in tokens, shared by all requests that run together; a single request
	// may use all of it, up to what the model was trained for.
	// +optional
	// +kubebuilder:default=8192
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=4194304
	ContextTokens int32 `json:"contextTokens,omitempty"`

	// maxSequences is how many requests decode together in one batch. More of them wait.
	// +optional
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	MaxSequences int32 `json:"maxSequences,omitempty"`

	// kvCacheType is the type of the numbers in the KV cache.
	// +optional
	// +kubebuilder:default=F16
	KVCacheType KVCacheType `json:"kvCacheType,omitempty"`
}

// Scaling bounds the number of workers.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="scaling.minReplicas must be less than or equal to scaling.maxReplicas: lower the one or raise the other"
type Scaling struct {
	// minReplicas is the least number of workers.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the greatest number of workers, those that a rollout adds for a while left aside.
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
}

// Rollout says how workers are replaced when a change needs new ones.
//
// +kubebuilder:validation:XValidation:rule="self.maxSurge > 0 || self.maxUnavailable > 0",message="rollout.maxSurge and rollout.maxUnavailable must not both be 0: no worker could ever be replaced"
type Rollout struct {
	// maxSurge is how many workers more than wanted may exist during a rollout.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxSurge *int32 `json:"maxSurge,omitempty"`

	// maxUnavailable is how many workers fewer than wanted may be in the ring during a rollout.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`
}

// InferenceModelStatus is what is.
type InferenceModelStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Progressing, WeightsCached, RouterReady, NamesAccepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of worker pods that exist and are not being deleted.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// loadedReplicas is how many of them have loaded the model.
	// +optional
	LoadedReplicas *int32 `json:"loadedReplicas,omitempty"`

	// inRingReplicas is how many of them get requests from every router.
	// +optional
	InRingReplicas *int32 `json:"inRingReplicas,omitempty"`

	// inRing is inRingReplicas of the number wanted, as in 2/2.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	InRing string `json:"inRing,omitempty"`

	// selector selects the worker pods, for autoscalers.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`

	// revision is a hash of everything in the spec that needs other pods when it changes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision,omitempty"`

	// servedNames are the names under which routers serve the model: modelName and aliases, less those that an older
	// model of the namespace has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=17
	// +kubebuilder:validation:items:MaxLength=253
	ServedNames []string `json:"servedNames,omitempty"`

	// url is the base URL for OpenAI clients inside the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url,omitempty"`

	// workers are those that are not in the ring yet, with what they do; at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Workers []WorkerProgress `json:"workers,omitempty"`
}

// WorkerStage is where a worker is on its way into the ring.
// +kubebuilder:validation:Enum=Pending;Starting;Fetching;Loading;Loaded;Failed;Draining
type WorkerStage string

// The stages of a worker, in order; Failed and Draining may follow any.
const (
	// StagePending: the pod has no node, or its images are on their way.
	StagePending WorkerStage = "Pending"
	// StageStarting: the container runs, the worker has not reported yet.
	StageStarting WorkerStage = "Starting"
	// StageFetching: the weights are on their way.
	StageFetching WorkerStage = "Fetching"
	// StageLoading: the engine loads the weights.
	StageLoading WorkerStage = "Loading"
	// StageLoaded: the model is loaded, the routers have not all taken it into their rings.
	StageLoaded WorkerStage = "Loaded"
	// StageFailed: the worker can't load its model.
	StageFailed WorkerStage = "Failed"
	// StageDraining: the worker finishes its requests and goes.
	StageDraining WorkerStage = "Draining"
)

// WorkerProgress is one worker that is not in the ring.
type WorkerProgress struct {
	// name of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// node that runs it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// stage it is in.
	// +required
	Stage WorkerStage `json:"stage,omitempty"`

	// percent of the stage that is done, where that is known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// message says what it waits for or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// InferenceModelList is a list of InferenceModels.
//
// +kubebuilder:object:root=true
type InferenceModelList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items of the list.
	Items []InferenceModel `json:"items"`
}
