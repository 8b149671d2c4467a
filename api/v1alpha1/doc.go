// Package v1alpha1 is the API of Ringfleet: the kinds InferenceModel, WorkerPool and InferenceRouter, their condition
// types and reasons, and the names (labels, ports, files) by which the manager, routers and workers find each other.
// It holds no logic; what the fields mean is done by the manager and the routers.
//
// The group's InferenceModel has nothing to do with the former kind of the same name in the Gateway API Inference
// Extension (inference.networking.x-k8s.io).
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=ac
// +groupName=inference.ringfleet.dev
package v1alpha1
