package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Options of a Watcher.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; empty inside a cluster.
	Kubeconfig string
	// Namespace is the only one that is looked at.
	Namespace string
	// Router is the name of the InferenceRouter whose settings hold. It need not exist.
	Router string
	Log    logr.Logger
}

// Watcher follows a namespace. It is used once: New, then Run.
type Watcher struct {
	log       logr.Logger
	models    cache.SharedIndexInformer
	endpoints cache.SharedIndexInformer
	routers   cache.SharedIndexInformer
	changed   chan struct{} // holds a token when an object has changed
	synced    []cache.InformerSynced
}

// New reads how to reach the API server. It doesn't call it.
func New(o Options) (*Watcher, error) {
	find := rest.InClusterConfig
	if o.Kubeconfig != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.Kubeconfig) }
	}
	config, err := find()
	if err != nil {
		return nil, fmt.Errorf("find the API server (kubeconfig %q): %w", o.Kubeconfig, err)
	}
	return newWatcher(config, o)
}

func newWatcher(config *rest.Config, o Options) (*Watcher, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the API server's errors
	fleet, err := client(config, scheme, v1alpha1.GroupVersion)
	if err != nil {
		return nil, err
	}
	slices, err := client(config, scheme, discoveryv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	w := &Watcher{log: o.Log, changed: make(chan struct{}, 1)}
	all := func(*metav1.ListOptions) {}
	ofModels := func(l *metav1.ListOptions) { l.LabelSelector = v1alpha1.LabelModelUID }
	one := func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.Router).String()
	}
	for _, i := range []struct {
		to       *cache.SharedIndexInformer
		client   rest.Interface
		resource string
		kind     runtime.Object
		which    func(*metav1.ListOptions)
	}{
		{&w.models, fleet, "inferencemodels", &v1alpha1.InferenceModel{}, all},
		{&w.endpoints, slices, "endpointslices", &discoveryv1.EndpointSlice{}, ofModels},
		{&w.routers, fleet, "inferencerouters", &v1alpha1.InferenceRouter{}, one},
	} {
		lw := cache.NewFilteredListWatchFromClient(i.client, i.resource, o.Namespace, i.which)
		*i.to = cache.NewSharedIndexInformer(lw, i.kind, 0, cache.Indexers{})
		if err := w.follow(*i.to, i.resource); err != nil {
			return nil, fmt.Errorf("follow %s: %w", i.resource, err)
		}
	}
	return w, nil
}

// client returns a client of one group and version.
func client(config *rest.Config, scheme *runtime.Scheme, gv schema.GroupVersion) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.UserAgent = "ringfleet-router"
	out, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", gv, err)
	}
	return out, nil
}

// follow makes every change of the informer's objects a token in w.changed.
func (w *Watcher) follow(i cache.SharedIndexInformer, resource string) error {
	touch := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { touch() }, UpdateFunc: func(_, _ any) { touch() }, DeleteFunc: func(any) { touch() },
	})
	w.synced = append(w.synced, registration.HasSynced)
	return errors.Join(err, i.SetTransform(trim), i.SetWatchErrorHandlerWithContext(
		func(_ context.Context, _ *cache.Reflector, err error) {
			if !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				w.log.Info("the API server can't be watched; what is known stays in force", "resource", resource, "error", err.Error())
			}
		}))
}

// trim drops what is never read, to save memory.
func trim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// Run follows the namespace until ctx ends, and calls onChange from one goroutine: first when every kind has been
// listed, then with each state that differs from the one before. Changes in quick succession may become one. It returns
// ctx's error.
func (w *Watcher) Run(ctx context.Context, onChange func(State)) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, i := range []cache.SharedIndexInformer{w.models, w.endpoints, w.routers} {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return ctx.Err()
	}
	w.log.Info("the namespace is known: models, endpoints and settings have been listed")
	for last := (State{}); ; {
		if next := w.state(); !reflect.DeepEqual(next, last) {
			last = next
			onChange(next)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
	}
}

// state is what the informers hold now.
func (w *Watcher) state() State {
	var router *v1alpha1.InferenceRouter
	for _, r := range stored[*v1alpha1.InferenceRouter](w.routers) {
		router = r
	}
	return build(stored[*v1alpha1.InferenceModel](w.models), stored[*discoveryv1.EndpointSlice](w.endpoints), router)
}

func stored[T any](i cache.SharedIndexInformer) []T {
	var out []T
	for _, o := range i.GetStore().List() {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
