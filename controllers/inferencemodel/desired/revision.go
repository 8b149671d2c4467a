package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// template counts the forms of the worker pod: it goes up when a new manager would make other pods from the same
// objects and the running ones must follow.
const template = 1

// revisionBytes is how much of the hash a revision keeps.
const revisionBytes = 5

// Revision is a hash of everything that needs another pod when it changes: the model's name, weights, engine, parallelism and
// adapters, the pool's spec and the worker's image. Replicas, aliases, bounds, rollout, drain time and the memory that the pool
// says a GPU has are no part of it.
func Revision(m *v1alpha1.InferenceModel, in Inputs) (string, error) {
	pool := in.Pool.Spec
	pool.Accelerator.MemoryMebibytes = 0 // only the manager plans by it
	if pool.RingWeightPercent == v1alpha1.DefaultRingWeightPercent {
		pool.RingWeightPercent = 0 // as of a pool that says nothing
	}
	what, err := json.Marshal(struct {
		Template  int
		ModelName string
		Weights   v1alpha1.Weights
		Engine    v1alpha1.Engine
		Split     *v1alpha1.Parallelism
		Image     string
		Pool      v1alpha1.WorkerPoolSpec
		Adapters  []v1alpha1.Adapter `json:",omitempty"`
	}{template, ModelName(m), m.Spec.Weights, m.Spec.Engine, m.Spec.Parallelism, image(m, in), pool, m.Spec.Adapters})
	if err != nil {
		return "", fmt.Errorf("hash the revision of InferenceModel %s/%s: %w", m.Namespace, m.Name, err)
	}
	sum := sha256.Sum256(what)
	return hex.EncodeToString(sum[:revisionBytes]), nil
}

// ModelName is the name under which clients ask for m.
func ModelName(m *v1alpha1.InferenceModel) string {
	if m.Spec.ModelName != "" {
		return m.Spec.ModelName
	}
	return m.Name
}

// image is the image of m's workers.
func image(m *v1alpha1.InferenceModel, in Inputs) string {
	switch {
	case beside(m):
		return in.Image
	case m.Spec.Engine.Image != "":
		return m.Spec.Engine.Image
	case onGPUs(in.Pool):
		return in.CUDAImage
	default:
		return in.Image
	}
}
