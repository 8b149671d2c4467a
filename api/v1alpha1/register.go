package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "inference.ringfleet.dev", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion under the name that generated code looks for.
var SchemeGroupVersion = GroupVersion

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&InferenceModel{}, &InferenceModelList{},
		&WorkerPool{}, &WorkerPoolList{},
		&InferenceRouter{}, &InferenceRouterList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
