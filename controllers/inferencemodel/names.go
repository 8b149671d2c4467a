package inferencemodel

import (
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// claims are the names that m wants to be served under, each once: modelName, aliases, then adapters.
func claims(m *v1alpha1.InferenceModel) []string {
	names := []string{desired.ModelName(m)}
	claim := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, a := range m.Spec.Aliases {
		claim(a)
	}
	for _, a := range m.Spec.Adapters {
		claim(a.Name)
	}
	return names
}

// taken is a name that belongs to another model.
type taken struct{ name, by string }

// shareNames splits m's claims into those that are its own and those that another model of the namespace has. A name
// belongs to the older object, then to the smaller UID; a model that is being deleted has none.
func shareNames(m *v1alpha1.InferenceModel, others []v1alpha1.InferenceModel) (own []string, lost []taken) {
	for _, name := range claims(m) {
		if o := owner(name, m, others); o.UID != m.UID {
			lost = append(lost, taken{name, o.Name})
			continue
		}
		own = append(own, name)
	}
	return own, lost
}

// owner is the model that has name, among m and those of others that claim it.
func owner(name string, m *v1alpha1.InferenceModel, others []v1alpha1.InferenceModel) *v1alpha1.InferenceModel {
	first := m
	for i := range others {
		o := &others[i]
		if o.DeletionTimestamp == nil && slices.Contains(claims(o), name) && before(o, first) {
			first = o
		}
	}
	return first
}

func before(a, b *v1alpha1.InferenceModel) bool {
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c < 0
	}
	return strings.Compare(string(a.UID), string(b.UID)) < 0
}
