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
//
// +kubebuilder:validation:XValidation:rule="has(self.spec.modelName) || !has(self.spec.adapters) || self.spec.adapters.all(a, a.name != self.metadata.name)",message="an adapter's name must not be the object's, which is the model's name without spec.modelName: clients could not ask for the model"
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
//
// +kubebuilder:validation:XValidation:rule="!has(self.parallelism) || self.engine.kind == 'VLLM' || self.engine.kind == 'SGLang' || self.engine.kind == 'OpenAI' || self.parallelism.tensor == 1 || self.parallelism.pipeline == 1",message="parallelism: llama.cpp splits each layer (tensor) or the row of layers (pipeline), not both: set one of them to 1"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || self.engine.kind == 'LlamaCpp' || self.engine.kind == 'VLLM' || self.engine.kind == 'SGLang'",message="adapters are for engine kinds LlamaCpp, VLLM and SGLang"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || self.engine.kind == 'LlamaCpp' || self.adapters.all(a, !has(a.digest))",message="an adapter's digest is for engine kind LlamaCpp: for the others an adapter is a folder, and a folder has none"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || !self.weights.uri.startsWith('https://') || self.adapters.all(a, has(a.uri))",message="adapters need a uri here: weights by https:// are one file, and nothing lies beside it"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || (self.engine.kind != 'VLLM' && self.engine.kind != 'SGLang') || self.adapters.all(a, has(a.uri) ? !has(a.file) && !a.uri.startsWith('https://') : self.weights.uri.startsWith('oci://') || self.weights.uri.startsWith('pvc://'))",message="an adapter of kinds VLLM and SGLang is a folder: give a uri by hf:// or s3:// without a file, or the folder as file where the weights are an image or a claim"
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || self.adapters.all(a, (!has(self.modelName) || a.name != self.modelName) && (!has(self.aliases) || !(a.name in self.aliases)))",message="an adapter's name must be neither modelName nor an alias: clients could not ask for the one or the other"
// +kubebuilder:validation:XValidation:rule="!has(self.weights.secretRef) || self.weights.uri.startsWith('hf://') || self.weights.uri.startsWith('s3://') || (has(self.adapters) && self.adapters.exists(a, has(a.uri) && (a.uri.startsWith('hf://') || a.uri.startsWith('s3://'))))",message="weights.secretRef is for weights or adapters by hf:// and s3://: images take the pool's imagePullSecrets, claims and https:// need no credentials"
// +kubebuilder:validation:XValidation:rule="self.engine.kind != 'LlamaServer' || has(self.weights.file) || !(self.weights.uri.startsWith('oci://') || self.weights.uri.startsWith('pvc://'))",message="weights.file is needed for engine kind LlamaServer on an image or a claim: it loads one GGUF file, by its name"
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

	// parallelism splits the model over several GPUs of one worker. Their number is tensor times pipeline.
	// +optional
	Parallelism *Parallelism `json:"parallelism,omitempty"`

	// adapters are LoRA adapters that every worker loads. Clients ask for one by its name, in place of the model's.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Adapters []Adapter `json:"adapters,omitempty"`

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
	// uri is where the weights are: oci://REGISTRY/REPOSITORY:TAG, an image that the kubelet mounts as a volume;
	// pvc://CLAIM/FOLDER, a folder of a PersistentVolumeClaim in the model's namespace; or what a worker fetches into the
	// pool's weightCache: hf://ORGANISATION/MODEL[@REVISION] from a Hugging Face hub, s3://BUCKET/KEY-OR-PREFIX from an
	// object store, https://HOST/FILE.gguf.
	// +required
	// +kubebuilder:validation:MinLength=7
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^oci://[a-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?$') || self.matches('^pvc://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[A-Za-z0-9][A-Za-z0-9._-]*)*$') || self.matches('^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?(/[A-Za-z0-9._-]+)*$') || self.matches('^s3://[a-z0-9][a-z0-9.-]*(/[^?#@ ]*)?$') || self.matches('^https://[A-Za-z0-9][A-Za-z0-9.:-]*/[^?#@ ]+$')",message="weights.uri must be oci://REGISTRY/REPOSITORY[:TAG|@sha256:…], pvc://CLAIM[/FOLDER], hf://ORGANISATION/MODEL[@REVISION], s3://BUCKET[/PREFIX] or https://HOST/PATH without a query"
	URI string `json:"uri,omitempty"`

	// file is the path of the weights file below the source's root, for example models/x.gguf. Defaults to the only file
	// whose name ends in .gguf; of hf and s3 sources without one, to all *.safetensors with what belongs to them.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$') && !self.matches('(^|/)\\\\.\\\\.?(/|$)')",message="weights.file must be a relative path without . or .. parts"
	File string `json:"file,omitempty"`

	// digest is what the weights must be: of the image's manifest for oci, of the weights file otherwise. A worker loads
	// nothing else.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="weights.digest must be sha256: and 64 lower-case hex digits"
	Digest string `json:"digest,omitempty"`

	// secretRef names a Secret whose keys become environment variables of what fetches: HF_TOKEN and HF_ENDPOINT for hf,
	// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL_S3 for s3. Without it s3 takes the identity of
	// the pod's service account. Adapters are fetched by the same.
	// +optional
	SecretRef LocalName `json:"secretRef,omitzero"`
}

// Adapter is a LoRA adapter: one GGUF file for kind LlamaCpp, a folder with adapter_config.json for VLLM and SGLang.
//
// +kubebuilder:validation:XValidation:rule="has(self.uri) || has(self.file)",message="an adapter needs a uri, or a file where it lies beside the weights"
type Adapter struct {
	// name that clients ask for in `model`. Names are shared out among the models of a namespace as modelName is.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?$')",message="an adapter's name must start and end with a letter or digit and may hold letters, digits and . _ : / @ + - between"
	Name string `json:"name,omitempty"`

	// uri is where the adapter is fetched from, by the rules of weights.uri: hf://, s3:// or, for LlamaCpp, https://, with the
	// credentials of weights.secretRef. Without it the adapter lies beside the weights.
	// +optional
	// +kubebuilder:validation:MinLength=7
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._/-]*)?(/[A-Za-z0-9._-]+)*$') || self.matches('^s3://[a-z0-9][a-z0-9.-]*(/[^?#@ ,]*)?$') || self.matches('^https://[A-Za-z0-9][A-Za-z0-9.:-]*/[^?#@ ,]+$')",message="an adapter's uri must be hf://ORGANISATION/MODEL[@REVISION], s3://BUCKET[/PREFIX] or https://HOST/PATH without a query or a comma"
	URI string `json:"uri,omitempty"`

	// file is the path of the adapter below its source's root, or without a uri below that of the weights. For VLLM and SGLang
	// it is a folder beside weights of an image or a claim, and a uri has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$') && !self.matches('(^|/)\\\\.\\\\.?(/|$)')",message="an adapter's file must be a relative path without . or .. parts"
	File string `json:"file,omitempty"`

	// digest is the SHA-256 of the adapter's file, for kind LlamaCpp. A worker loads nothing else.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="an adapter's digest must be sha256: and 64 lower-case hex digits"
	Digest string `json:"digest,omitempty"`
}

// EngineKind names an engine.
// +kubebuilder:validation:Enum=LlamaCpp;VLLM;SGLang;LlamaServer;OpenAI
type EngineKind string

// The kinds of engine. All but LlamaCpp run in a container of their own beside the worker's.
const (
	// EngineLlamaCpp is llama.cpp's library inside the worker's own process.
	EngineLlamaCpp EngineKind = "LlamaCpp"
	// EngineVLLM is `vllm serve`, EngineSGLang is `sglang.launch_server`, EngineLlamaServer is llama.cpp's own server.
	EngineVLLM        EngineKind = "VLLM"
	EngineSGLang      EngineKind = "SGLang"
	EngineLlamaServer EngineKind = "LlamaServer"
	// EngineOpenAI is any other server that speaks OpenAI's protocol on port 8000 of its own pod.
	EngineOpenAI EngineKind = "OpenAI"
)

// KVCacheType is the type of the numbers in the KV cache.
// +kubebuilder:validation:Enum=F16;Q8
type KVCacheType string

// The types of KV cache. Q8 needs about half of the memory of F16.
const (
	KVCacheF16 KVCacheType = "F16"
	KVCacheQ8  KVCacheType = "Q8"
)

// Engine says what runs the model, and how much of it at once.
//
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'LlamaCpp' || has(self.image)",message="engine.image is needed for this kind: it is the image of the engine's own container"
// +kubebuilder:validation:XValidation:rule="has(self.kind) && self.kind != 'LlamaCpp' || (!has(self.command) && !has(self.args) && !has(self.env) && !has(self.dtype))",message="engine.command, args, env and dtype are for engines in a container of their own; kind LlamaCpp runs inside the worker"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'VLLM' || self.kind == 'SGLang' || !has(self.prefixCaching) || self.prefixCaching == 'Enabled'",message="engine.prefixCaching can be disabled for kinds VLLM and SGLang only"
type Engine struct {
	// kind of engine.
	// +optional
	// +kubebuilder:default=LlamaCpp
	Kind EngineKind `json:"kind,omitempty"`

	// image of the engine's container. For kind LlamaCpp it is the image of the workers, and defaults to the worker image of
	// the installation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// command replaces the program that the kind runs, or for kind OpenAI the image's own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Command []string `json:"command,omitempty"`

	// args follow the arguments that are composed from this object, so that they win; kind OpenAI gets these alone. The
	// weights are in /weights, or where they are fetched at /model/weights; the server must listen on port 8000. What an
	// engine is started with is in status.engineArgs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Args []string `json:"args,omitempty"`

	// env are further environment variables of the engine's container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []EngineVariable `json:"env,omitempty"`

	// dtype is the type of the weights as the engine names it, for example bfloat16. Defaults to the engine's choice.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+$')",message="engine.dtype must be letters, digits and . _ -"
	DType string `json:"dtype,omitempty"`

	// prefixCaching says whether prompts that begin alike are computed once. Defaults to Enabled.
	// +optional
	// +kubebuilder:default=Enabled
	PrefixCaching PrefixCaching `json:"prefixCaching,omitempty"`

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

// EngineVariable is an environment variable of an engine.
type EngineVariable struct {
	// name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="engine.env[].name must be letters, digits and _, and begin with no digit"
	Name string `json:"name,omitempty"`

	// value of the variable. Not for secrets: who may read the model reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// PrefixCaching says whether prompts that begin alike are computed once.
// +kubebuilder:validation:Enum=Enabled;Disabled
type PrefixCaching string

// The settings of prefix caching.
const (
	PrefixCachingEnabled  PrefixCaching = "Enabled"
	PrefixCachingDisabled PrefixCaching = "Disabled"
)

// Parallelism splits a model over several GPUs of one worker. For engine kind OpenAI it is only their number: the engine's own
// arguments split the model.
type Parallelism struct {
	// tensor is over how many GPUs each layer is split.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Tensor *int32 `json:"tensor,omitempty"`

	// pipeline is over how many groups of GPUs the row of layers is split.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Pipeline *int32 `json:"pipeline,omitempty"`
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

	// conditions are Ready, Progressing, WeightsCached, MemoryFits, RouterReady, NamesAccepted.
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

	// engineArgs are the arguments that the engine's container is started with, where it has one of its own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1024
	EngineArgs []string `json:"engineArgs,omitempty"`

	// servedNames are the names under which routers serve the model: modelName, aliases and the adapters' names, less those
	// that an older model of the namespace has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=49
	// +kubebuilder:validation:items:MaxLength=253
	ServedNames []string `json:"servedNames,omitempty"`

	// memory is what a worker needs of its memory, and what it has, once a worker has read the weights' header.
	// +optional
	Memory *ModelMemory `json:"memory,omitempty"`

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

// ModelMemory is the plan of the fullest of a worker's GPUs, or of its container's memory where it has none.
type ModelMemory struct {
	// gpus is over how many GPUs the model is split; 0: it runs on the CPU.
	// +optional
	GPUs int32 `json:"gpus,omitempty"`

	// weightsMebibytes are the weights'.
	// +optional
	WeightsMebibytes int64 `json:"weightsMebibytes,omitempty"`

	// kvCacheMebibytes are for engine.contextTokens tokens.
	// +optional
	KVCacheMebibytes int64 `json:"kvCacheMebibytes,omitempty"`

	// otherMebibytes are for the computation's buffers and the process.
	// +optional
	OtherMebibytes int64 `json:"otherMebibytes,omitempty"`

	// neededMebibytes is the sum.
	// +optional
	NeededMebibytes int64 `json:"neededMebibytes,omitempty"`

	// availableMebibytes is what may be planned: a part of the GPU's memory, or of the container's limit.
	// +optional
	AvailableMebibytes int64 `json:"availableMebibytes,omitempty"`
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
