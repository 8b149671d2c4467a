// Package conditions turns what a pure function found into conditions of an object's status. It decides nothing about
// the objects themselves, and never reads or writes one.
package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Finding is the judgement of one condition.
type Finding struct {
	Type    v1alpha1.ConditionType
	Status  metav1.ConditionStatus
	Reason  v1alpha1.Reason
	Message string
}

// True says that t holds.
func True(t v1alpha1.ConditionType, why v1alpha1.Reason, message string) Finding {
	return Finding{Type: t, Status: metav1.ConditionTrue, Reason: why, Message: message}
}

// False says that t does not hold; message names object, number and next step.
func False(t v1alpha1.ConditionType, why v1alpha1.Reason, message string) Finding {
	return Finding{Type: t, Status: metav1.ConditionFalse, Reason: why, Message: message}
}

// Unknown says that it can't be told yet whether t holds; message says what is waited for.
func Unknown(t v1alpha1.ConditionType, why v1alpha1.Reason, message string) Finding {
	return Finding{Type: t, Status: metav1.ConditionUnknown, Reason: why, Message: message}
}

// Holds reports whether f is True.
func (f Finding) Holds() bool { return f.Status == metav1.ConditionTrue }
