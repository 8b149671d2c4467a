package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// sight is when the API server told of a pod's steps. Times in objects are whole seconds; these are not.
type sight struct {
	name                               string
	created, scheduled, pulled, inRing time.Time
}

// watcher watches the workers of a model and the events of its namespace.
type watcher struct {
	added chan types.UID // pods that are created, in order

	mu   sync.Mutex // guards seen
	seen map[types.UID]*sight
}

// watchWorkers watches until ctx ends; end waits for that and returns an error when a watch ended on its own.
func watchWorkers(ctx context.Context, c *cluster.Cluster, m *v1alpha1.InferenceModel) (w *watcher, end func() error, err error) {
	w = &watcher{added: make(chan types.UID, 64), seen: map[types.UID]*sight{}}
	pods, events := &corev1.PodList{}, &corev1.EventList{}
	mine := client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)}
	podWatch, err := begin(ctx, c, pods, client.InNamespace(m.Namespace), mine)
	if err != nil {
		return nil, nil, err
	}
	eventWatch, err := begin(ctx, c, events, client.InNamespace(m.Namespace))
	if err != nil {
		podWatch.Stop()
		return nil, nil, err
	}
	ended := make(chan error, 2)
	go func() { ended <- follow(ctx, podWatch, w.pod) }()
	go func() { ended <- follow(ctx, eventWatch, w.event) }()
	return w, func() error { return errors.Join(<-ended, <-ended) }, nil
}

// begin lists, and watches what comes after.
func begin(ctx context.Context, c *cluster.Cluster, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
	if err := c.API.List(ctx, list, o...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	w, err := c.API.Watch(ctx, list, append(o, since)...)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	return w, nil
}

func follow(ctx context.Context, w watch.Interface, note func(watch.Event, time.Time)) error {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			if ctx.Err() != nil {
				return nil
			}
			if !ok || e.Type == watch.Error {
				return fmt.Errorf("a watch ended: %v", e.Object)
			}
			note(e, time.Now())
		}
	}
}

func (w *watcher) pod(e watch.Event, now time.Time) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(p.UID)
	if e.Type == watch.Added {
		s.name = p.Name
		once(&s.created, now)
		select {
		case w.added <- p.UID:
		default: // nobody waits for so many
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			once(&s.scheduled, now)
		}
	}
	if cluster.InRing(p) {
		once(&s.inRing, now)
	}
}

func (w *watcher) event(e watch.Event, now time.Time) {
	k, ok := e.Object.(*corev1.Event)
	if !ok || k.Reason != "Pulled" || e.Type == watch.Deleted {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(k.InvolvedObject.UID).pulled = now // the last counts
}

// of returns what was seen of a pod. mu is held.
func (w *watcher) of(uid types.UID) *sight {
	if w.seen[uid] == nil {
		w.seen[uid] = &sight{}
	}
	return w.seen[uid]
}

// get returns a copy.
func (w *watcher) get(uid types.UID) sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.of(uid)
}

func once(t *time.Time, now time.Time) {
	if t.IsZero() {
		*t = now
	}
}
