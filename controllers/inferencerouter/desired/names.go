package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

const (
	suffix     = "-router"
	maxLabel   = 63
	hashLength = 8
)

// Name is the name of everything that belongs to an InferenceRouter: NAME-router, when that may be the name of a
// Service. A longer name, or one with dots or a leading digit, is changed and gets a hash, so that no two meet.
func Name(router *v1alpha1.InferenceRouter) string {
	label := strings.ReplaceAll(router.Name, ".", "-")
	if strings.IndexAny(label, "0123456789") == 0 {
		label = "r" + label
	}
	limit := maxLabel - len(suffix)
	if label == router.Name && len(label) <= limit {
		return label + suffix
	}
	return shorten(label, router.Name, limit) + suffix
}

// labelValue is name as the value of a label: itself, or its beginning and a hash when it is longer than a value may be.
func labelValue(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	return shorten(name, name, maxLabel)
}

// shorten returns the beginning of text and the hash of whole in at most limit bytes.
func shorten(text, whole string, limit int) string {
	sum := sha256.Sum256([]byte(whole))
	head := strings.TrimRight(text[:min(len(text), limit-hashLength-1)], "-.")
	return head + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
