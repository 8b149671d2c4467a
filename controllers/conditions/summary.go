package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Summary sums up parts into one finding of the type of good: the first part that is False decides, then the first that
// is Unknown, and good itself when every part holds. The order of parts is therefore the order of what to look at first.
func Summary(good Finding, parts ...Finding) Finding {
	for _, bad := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		for _, p := range parts {
			if p.Status == bad {
				p.Type = good.Type
				return p
			}
		}
	}
	return good
}
