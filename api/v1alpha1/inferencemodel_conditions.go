package v1alpha1

// ConditionType names a condition of a kind in this group.
type ConditionType string

// Reason is a condition's reason: one CamelCase word from a closed set, documented in docs/errors.md.
type Reason string

// Conditions of an InferenceModel. Ready is on every kind.
const (
	// Ready: every wanted worker is in every router's ring, or the model sleeps at zero and would wake.
	Ready ConditionType = "Ready"
	// Progressing: the manager is changing something to reach the spec.
	Progressing ConditionType = "Progressing"
	// WeightsCached: the weights are on the nodes of all workers and were accepted.
	WeightsCached ConditionType = "WeightsCached"
	// MemoryFits: the weights and the KV cache have room in a worker's memory. Unknown until a worker has read the weights.
	MemoryFits ConditionType = "MemoryFits"
	// RouterReady: at least one router of the namespace serves, and all of them answer the manager.
	RouterReady ConditionType = "RouterReady"
	// NamesAccepted: no older model of the namespace has a name that this one claims.
	NamesAccepted ConditionType = "NamesAccepted"
)

// Reasons of Ready and Progressing on an InferenceModel.
const (
	// ReasonServing: all wanted workers get requests.
	ReasonServing Reason = "Serving"
	// ReasonScaledToZero: no worker is wanted now.
	ReasonScaledToZero Reason = "ScaledToZero"
	// ReasonWorkersStarting: workers are on their way into the ring.
	ReasonWorkersStarting Reason = "WorkersStarting"
	// ReasonRollingOut: workers of an older revision are being replaced.
	ReasonRollingOut Reason = "RollingOut"
	// ReasonScalingDown: workers that are no longer wanted finish their requests.
	ReasonScalingDown Reason = "ScalingDown"
	// ReasonUnschedulable: no node has room for a worker.
	ReasonUnschedulable Reason = "Unschedulable"
	// ReasonImagePullFailed: a node can't get the worker's image.
	ReasonImagePullFailed Reason = "ImagePullFailed"
	// ReasonPodRejected: the API server or a node refuses the worker's pod.
	ReasonPodRejected Reason = "PodRejected"
	// ReasonWorkerFailed: a worker's process ends again and again.
	ReasonWorkerFailed Reason = "WorkerFailed"
	// ReasonWeightsNotUsable: see the condition WeightsCached.
	ReasonWeightsNotUsable Reason = "WeightsNotUsable"
	// ReasonPoolNotFound: the WorkerPool that the model names does not exist.
	ReasonPoolNotFound Reason = "PoolNotFound"
	// ReasonRouterNotReady: see the condition RouterReady.
	ReasonRouterNotReady Reason = "RouterNotReady"
	// ReasonNameTaken: an older model has every name that this one claims (Ready), or one of them (NamesAccepted).
	ReasonNameTaken Reason = "NameTaken"
	// ReasonStable: nothing is being changed.
	ReasonStable Reason = "Stable"
	// ReasonDeleting: the object is being deleted.
	ReasonDeleting Reason = "Deleting"
	// ReasonReconcileFailed: a call to the API server failed; it is tried again.
	ReasonReconcileFailed Reason = "ReconcileFailed"
)

// Reasons of WeightsCached.
const (
	// ReasonWeightsLoaded: every worker has accepted the weights.
	ReasonWeightsLoaded Reason = "WeightsLoaded"
	// ReasonWeightsPending: no worker has got so far.
	ReasonWeightsPending Reason = "WeightsPending"
	// ReasonWeightsPullFailed: a node can't get the weights' image or volume.
	ReasonWeightsPullFailed Reason = "WeightsPullFailed"
	// ReasonWeightsNotFound: the volume has no such file, no GGUF file, or several.
	ReasonWeightsNotFound Reason = "WeightsNotFound"
	// ReasonWeightsNotGGUF: the file is not a GGUF file of a version that can be read.
	ReasonWeightsNotGGUF Reason = "WeightsNotGGUF"
	// ReasonWeightsTruncated: the file is shorter than its own header says.
	ReasonWeightsTruncated Reason = "WeightsTruncated"
	// ReasonWeightsDigestMismatch: the file's SHA-256 is not the wanted one.
	ReasonWeightsDigestMismatch Reason = "WeightsDigestMismatch"
	// ReasonWeightsUnauthorized: the source wants credentials, others, or consent to its terms.
	ReasonWeightsUnauthorized Reason = "WeightsUnauthorized"
	// ReasonWeightsSourceForbidden: the source's address is one that weights are not fetched from.
	ReasonWeightsSourceForbidden Reason = "WeightsSourceForbidden"
	// ReasonWeightsSourceUnreachable: no answer from the source, or only ones to try again later.
	ReasonWeightsSourceUnreachable Reason = "WeightsSourceUnreachable"
	// ReasonWeightsSourceChanged: the source replaced a file while it was fetched, twice.
	ReasonWeightsSourceChanged Reason = "WeightsSourceChanged"
	// ReasonWeightsNoSpace: the weight cache or its disk has no room.
	ReasonWeightsNoSpace Reason = "WeightsNoSpace"
	// ReasonWeightsCacheUnwritable: the weight cache can't be written.
	ReasonWeightsCacheUnwritable Reason = "WeightsCacheUnwritable"
	// ReasonWeightsUnsupported: the engine refuses the model (architecture, tokenizer, chat template, memory).
	ReasonWeightsUnsupported Reason = "WeightsUnsupported"
)

// Reasons of MemoryFits.
const (
	// ReasonMemorySuffices: there is room for what the spec asks for.
	ReasonMemorySuffices Reason = "MemorySuffices"
	// ReasonMemoryShort: the spec asks for more than a worker has; the message names the changes that make it fit.
	ReasonMemoryShort Reason = "MemoryShort"
	// ReasonMemoryUnknown: no worker has read the weights yet, the engine plans its memory itself, or the GPU's memory is
	// unknown.
	ReasonMemoryUnknown Reason = "MemoryUnknown"
)

// Reasons of RouterReady and NamesAccepted.
const (
	// ReasonRoutersReady: every router is Ready and answers.
	ReasonRoutersReady Reason = "RoutersReady"
	// ReasonNoRouterReady: no router pod is Ready.
	ReasonNoRouterReady Reason = "NoRouterReady"
	// ReasonRouterSilent: a Ready router has not answered the manager for ten seconds and is left out.
	ReasonRouterSilent Reason = "RouterSilent"
	// ReasonNamesFree: all names are this model's.
	ReasonNamesFree Reason = "NamesFree"
)
