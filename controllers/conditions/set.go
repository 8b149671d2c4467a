package conditions

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is how many bytes of a message are kept; the API allows 32768, people read fewer.
const maxMessage = 2048

// Set writes findings into list for the given generation of the spec. A condition keeps its transition time while its
// status stays; one that changes gets now. Conditions that no finding names stay as they are.
func Set(list *[]metav1.Condition, generation int64, now time.Time, findings ...Finding) {
	for _, f := range findings {
		meta.SetStatusCondition(list, metav1.Condition{
			Type:               string(f.Type),
			Status:             f.Status,
			Reason:             string(f.Reason),
			Message:            Shorten(f.Message, maxMessage),
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now),
		})
	}
}

// Shorten returns text in at most limit bytes (at least 3) of whole, valid characters; a cut one ends in an ellipsis.
func Shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	cut := 0
	for i := range text {
		if i > limit-len(ellipsis) {
			break
		}
		cut = i
	}
	return text[:cut] + ellipsis
}
