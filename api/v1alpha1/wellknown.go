package v1alpha1

// Labels on everything that the manager makes. Their values always fit into 63 characters.
const (
	// LabelModel is the name of the InferenceModel, shortened with a hash when it is longer than a label may be.
	LabelModel = "inference.ringfleet.dev/model"
	// LabelModelUID is its UID. Selectors use it: pods of an orphaned or earlier model of the same name don't match.
	LabelModelUID = "inference.ringfleet.dev/model-uid"
	// LabelRevision is the revision of a worker pod.
	LabelRevision = "inference.ringfleet.dev/revision"
	// LabelPool is the name of the WorkerPool, shortened like LabelModel.
	LabelPool = "inference.ringfleet.dev/pool"
	// LabelRouter is the name of the InferenceRouter, shortened like LabelModel.
	LabelRouter = "inference.ringfleet.dev/router"
	// LabelCreatedFor marks a default WorkerPool or InferenceRouter that was created because a model needed one.
	// Such an object is removed with the last model of its namespace as long as it carries the label.
	LabelCreatedFor = "inference.ringfleet.dev/created-for-models"
	// LabelComponent has the value "worker" or "router".
	LabelComponent = "app.kubernetes.io/component"
	// LabelManagedBy has the value ManagedBy: the manager sees nothing else of Kubernetes' own kinds.
	LabelManagedBy = "app.kubernetes.io/managed-by"
)

// ManagedBy is the value of LabelManagedBy.
const ManagedBy = "ringfleet-manager"

// GateInRing is the readiness gate of worker pods: True once every Ready router has this instance in its ring.
const GateInRing = "inference.ringfleet.dev/in-ring"

// AnnotationInRingInstance on a worker pod names the instance id for which GateInRing was opened last.
const AnnotationInRingInstance = "inference.ringfleet.dev/in-ring-instance"

// AnnotationInRingContainer on a worker pod names the container that ran that instance: when another one runs, or none,
// GateInRing no longer holds.
const AnnotationInRingContainer = "inference.ringfleet.dev/in-ring-container"

// DefaultName is the name of the WorkerPool and the InferenceRouter that are created when a namespace has none.
const DefaultName = "default"

// Names and numbers of ports.
const (
	// PortHTTP serves clients on routers, and /health, /metrics, /livez and /readyz on workers.
	PortHTTP       = "http"
	PortHTTPNumber = 8080
	// PortGRPC serves Watch, Generate, … on workers and Status on routers, over mutual TLS.
	PortGRPC       = "grpc"
	PortGRPCNumber = 9443
	// PortOps serves /livez, /readyz and /metrics on routers.
	PortOps       = "ops"
	PortOpsNumber = 8081
)

// Names and places of credentials. Each namespace has one Secret for its workers and one for its routers.
const (
	SecretWorkerTLS = "ringfleet-worker-tls"
	SecretRouterTLS = "ringfleet-router-tls"
	// TLSDir is where a pod finds its Secret: tls.crt, tls.key, ca.crt.
	TLSDir = "/etc/ringfleet/tls"
	// ClientTLSDir is where a router finds the certificate that clients see: tls.crt, tls.key.
	ClientTLSDir = "/etc/ringfleet/client-tls"
)

// Places of weights in a worker's pod.
const (
	// WeightsDir is where the volume of an image or a claim is mounted.
	WeightsDir = "/weights"
	// WeightCacheDir is where the pool's weight cache is mounted, and FetchedWeights a link to what was fetched into it.
	WeightCacheDir = "/cache"
	FetchedDir     = "/model"
	FetchedWeights = FetchedDir + "/weights"
)

// EnginePort is where an engine in a container of its own listens.
const EnginePort = 8000
