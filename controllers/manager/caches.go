package manager

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/step"
	"github.com/ringfleet/ringfleet/controllers/workerpool"
)

// newScheme knows the kinds that the manager reads or writes, and no others.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// cacheOptions keep of Kubernetes' own kinds only what the manager made, of nodes what pools are judged by, and of managed fields only its own entry, by
// which step.Apply sees what needs no write.
func cacheOptions() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})}
	return cache.Options{
		DefaultTransform: keepOwnFields,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   ours,
			&corev1.Service{}:               ours,
			&corev1.ServiceAccount{}:        ours,
			&appsv1.Deployment{}:            ours,
			&rbacv1.RoleBinding{}:           ours,
			&policyv1.PodDisruptionBudget{}: ours,
			&corev1.Node{}:                  {Transform: workerpool.TrimNode},
		},
	}
}

// keepOwnFields is a cache's transform.
func keepOwnFields(obj any) (any, error) {
	accessor, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil // a tombstone: there is nothing to keep
	}
	var own []metav1.ManagedFieldsEntry
	for _, entry := range accessor.GetManagedFields() {
		if entry.Manager == step.Owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			own = append(own, entry)
		}
	}
	accessor.SetManagedFields(own)
	return obj, nil
}

// clientOptions make reads wait for the manager's own writes, so that no stale read makes a second pod. Secrets are not
// read through this client: that would watch all of them.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		DisableFor:                      []client.Object{&corev1.Secret{}},
		EnableReadYourWritesConsistency: ptr.To(true),
	}}
}

// secretCache holds the Secrets of one name, in namespace or in all of them when that is empty.
func secretCache(mgr ctrl.Manager, name, namespace string) (cache.Cache, error) {
	only := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name), Transform: cache.TransformStripManagedFields()}
	if namespace != "" {
		only.Namespaces = map[string]cache.Config{namespace: {}}
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject:   map[client.Object]cache.ByObject{&corev1.Secret{}: only},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of Secrets %s: %w", name, err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("start the cache of Secrets %s: %w", name, err)
	}
	return c, nil
}
