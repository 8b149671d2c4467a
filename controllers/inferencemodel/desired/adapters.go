package desired

import (
	"encoding/json"
	"slices"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// How an engine is started that loads adapters while it runs: so many are used together at most, none of a greater rank. Both
// take memory of the GPU, needed or not; the engine's own arguments may say otherwise.
const (
	maxAdapters    = 8
	maxAdapterRank = 64
)

// adaptersLink is the folder with a link to each fetched adapter, by its place in spec.adapters.
const adaptersLink = v1alpha1.FetchedDir + "/adapters"

// adapterSource is an adapter as a worker is told of it.
type adapterSource struct {
	Name   string `json:"name"`
	URI    string `json:"uri,omitempty"`
	File   string `json:"file,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// fetchesAdapters reports whether workers fetch adapters of m. Those without a uri lie beside the weights.
func fetchesAdapters(m *v1alpha1.InferenceModel) bool {
	return slices.ContainsFunc(m.Spec.Adapters, func(a v1alpha1.Adapter) bool { return a.URI != "" })
}

// fetches reports whether workers of m fetch anything.
func fetches(m *v1alpha1.InferenceModel) bool { return Fetched(m.Spec.Weights) || fetchesAdapters(m) }

// adapterArgs tell a worker of m's adapters.
func adapterArgs(m *v1alpha1.InferenceModel) []string {
	if len(m.Spec.Adapters) == 0 {
		return nil
	}
	sources := make([]adapterSource, 0, len(m.Spec.Adapters))
	for _, a := range m.Spec.Adapters {
		sources = append(sources, adapterSource{Name: a.Name, URI: a.URI, File: a.File, Digest: a.Digest})
	}
	text, _ := json.Marshal(sources) // fails for no string
	args := []string{"--adapter-sources=" + literal(string(text))}
	if beside(m) && fetchesAdapters(m) {
		args = append(args, "--adapters-link="+adaptersLink)
	}
	return args
}
