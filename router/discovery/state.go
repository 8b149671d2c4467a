// Package discovery turns what a namespace of a cluster says (InferenceModels, their EndpointSlices and one
// InferenceRouter) into plain values: which models are served under which names, which pods are candidates for each,
// and the router's settings. It is the only package of the router that knows Kubernetes. It keeps the last state while
// the API server is away, and never judges whether a candidate is alive: package heartbeat does.
package discovery

import (
	"time"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// State is everything that the router takes from the cluster, at one moment.
type State struct {
	// Synced is true in every state that a Watcher delivers: all three kinds have been listed. The zero State, before
	// the first delivery, has it false.
	Synced   bool
	Models   []Model // older ones first, then by UID
	Settings Settings
}

// Model is an InferenceModel.
type Model struct {
	UID    string
	Object string // name of the object
	Name   string // what workers report and clients ask for: spec.modelName, else the object's name
	// ServedNames are the names that it is served under, its share of those that the manager accepted. Empty when the
	// object is being deleted.
	ServedNames []string
	// Adapters are those of ServedNames that ask for an adapter of the model instead of the model itself.
	Adapters   []string
	Created    time.Time
	Deleting   bool
	Candidates []Candidate // in the order of their names, which are distinct over all models
}

// Candidate is a pod behind the model's Service.
type Candidate struct {
	PodName     string
	PodUID      string
	Address     string // host:port of its gRPC server
	Terminating bool
}

// Settings are the numbers of the InferenceRouter.
type Settings struct {
	Heartbeat    Heartbeat
	VirtualNodes int
	// MaxLoadPercent is the most requests that a worker may have, in per cent of the mean; Policy chooses a worker.
	MaxLoadPercent int
	Policy         string
	// Resume lets answers go on at another worker.
	Resume bool
	// TrustHeaders believes what a request says of its tier and tenant. Tiers are by falling priority, then by name; there
	// is at least one, and DefaultTier is one of them.
	TrustHeaders bool
	// Isolate keeps the cached prompts of tenants apart.
	Isolate     bool
	Tiers       []Tier
	DefaultTier string
	Admission   Admission
	// FirstByte is how long a worker may take until the first token, Idle how long between two.
	FirstByte, Idle time.Duration
}

// Tier is a class of requests.
type Tier struct {
	Name     string
	Priority int32
	// WhenBusy is First, Queue or Refuse.
	WhenBusy string
	MaxQueue time.Duration
}

// Admission says when requests wait, and how many may.
type Admission struct {
	// These are uses of the KV cache, none below the one before it.
	WatchPercent, ScaleOutPercent, AdmitPercent, RefusePercent int
	// MaxQueued may wait for room, MaxHeld for any worker, MaxHold long: of each model.
	MaxQueued, MaxHeld int
	MaxHold            time.Duration
}

// Heartbeat says when a worker counts as lost and when as back.
type Heartbeat struct {
	Interval, Timeout                time.Duration
	FailuresToDrop, SuccessesToAdmit int
}

// DefaultSettings hold without an InferenceRouter, and wherever it leaves a number out.
func DefaultSettings() Settings {
	return Settings{
		Heartbeat: Heartbeat{
			Interval: time.Second, Timeout: 500 * time.Millisecond, FailuresToDrop: 3, SuccessesToAdmit: 2,
		},
		VirtualNodes:   150,
		MaxLoadPercent: 125,
		Policy:         string(v1alpha1.PlacementLeastPredictedTTFT),
		Resume:         true,
		Tiers:          []Tier{{Name: defaultTier, WhenBusy: string(v1alpha1.WhenBusyQueue), MaxQueue: 30 * time.Second}},
		DefaultTier:    defaultTier,
		Admission: Admission{WatchPercent: 75, ScaleOutPercent: 80, AdmitPercent: 90, RefusePercent: 95,
			MaxQueued: 1000, MaxHeld: 1000, MaxHold: 570 * time.Second},
		FirstByte: 120 * time.Second,
		Idle:      60 * time.Second,
	}
}

// defaultTier is the tier of an InferenceRouter that names none.
const defaultTier = "default"
