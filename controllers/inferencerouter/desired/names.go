package desired

import (
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

const suffix = "-router"

// Name is the name of everything that belongs to an InferenceRouter: NAME-router, when that may be the name of a
// Service. A longer name, or one with dots or a leading digit, is changed and gets a hash, so that no two meet.
func Name(router *v1alpha1.InferenceRouter) string {
	label := strings.ReplaceAll(router.Name, ".", "-")
	if strings.IndexAny(label, "0123456789") == 0 {
		label = "r" + label
	}
	limit := names.Max - len(suffix)
	if label == router.Name && len(label) <= limit {
		return label + suffix
	}
	return names.Short(label, router.Name, limit) + suffix
}
