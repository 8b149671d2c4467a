// Package desired says what the objects of an InferenceModel should be: its worker pods, its headless Service and
// its disruption budget, their names and the revision of a worker. Everything follows from its arguments; it reads and writes no object.
package desired

import (
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// Lengths of the parts of a worker's name that follow those of its model.
const (
	revisionLength = 6 // of the revision's own length, which is revisionBytes * 2
	ordinalLength  = 5
)

// ServiceName is the name of m's headless Service and disruption budget: at most 63 characters, a DNS label that begins with a letter, and
// another one for every UID.
func ServiceName(m *v1alpha1.InferenceModel) string {
	return names.Short(m.Name, string(m.UID), names.Max)
}

// WorkerName is the name of the worker pod with that revision and ordinal (0…99999), under the rules of ServiceName.
func WorkerName(m *v1alpha1.InferenceModel, revision string, ordinal int) string {
	return names.Short(m.Name, string(m.UID), names.Max-1-revisionLength-1-ordinalLength) +
		"-" + revision[:min(len(revision), revisionLength)] + "-" + strconv.Itoa(ordinal)
}

// Ordinal is the ordinal in the name of a worker pod; false when the name has none.
func Ordinal(pod string) (int, bool) {
	n, err := strconv.ParseUint(pod[strings.LastIndexByte(pod, '-')+1:], 10, 31)
	return int(n), err == nil
}
