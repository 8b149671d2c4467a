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

// Revision is a hash of everything that needs another pod when it changes: the model's name, weights, engine and parallelism, the
// pool's spec and the worker's image. Replicas, aliases, bounds, rollout and drain time are no part of it.
func Revision(m *v1alpha1.InferenceModel, in Inputs) (string, error) {
	what, err := json.Marshal(struct {
		Template  int
		ModelName string
		Weights   v1alpha1.Weights
		Engine    v1alpha1.Engine
		Split     *v1alpha1.Parallelism
		Image     string
		Pool      v1alpha1.WorkerPoolSpec
	}{template, ModelName(m), m.Spec.Weights, m.Spec.Engine, m.Spec.Parallelism, image(m, in), in.Pool.Spec})
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
	if m.Spec.Engine.Image != "" && !beside(m) {
		return m.Spec.Engine.Image
	}
	return in.Image
}
