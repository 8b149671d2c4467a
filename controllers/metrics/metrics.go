// Package metrics is the manager's own metrics: one Set, beside those that controller-runtime has of every controller.
// It counts and measures; nothing is decided by it. Labels are stages and roles, never names of objects.
package metrics

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Stages of workers beside those of the API.
const (
	stageInRing = "InRing"
	// stageUnlisted are workers that a status of many has no room for.
	stageUnlisted = "Unlisted"
)

// scrapeTimeout bounds the look at the cache for one scrape.
const scrapeTimeout = 5 * time.Second

// Set holds every metric of the manager.
type Set struct {
	// PodsCreated is ringfleet_manager_worker_pods_created_total.
	PodsCreated prometheus.Counter
	// PodsDeleted is ringfleet_manager_worker_pods_deleted_total.
	PodsDeleted prometheus.Counter

	workers       *prometheus.Desc // ringfleet_manager_workers{stage}
	routersSilent *prometheus.Desc // ringfleet_manager_routers_silent
	expiry        *prometheus.Desc // ringfleet_manager_certificate_seconds_to_expiry{role}

	models client.Reader
	silent func() int
	clock  clock.PassiveClock

	mu   sync.Mutex // guards ends
	ends map[certificate]time.Time
}

type certificate struct {
	namespace string
	role      identity.Role
}

// New returns a set that looks at the models of reader and asks silent for the number of silent routers at each scrape.
func New(reader client.Reader, silent func() int, c clock.PassiveClock) *Set {
	const prefix = "ringfleet_manager_"
	return &Set{
		PodsCreated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "worker_pods_created_total", Help: "Worker pods that this manager has created."}),
		PodsDeleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "worker_pods_deleted_total", Help: "Worker pods that this manager has deleted."}),
		workers: prometheus.NewDesc(prefix+"workers", "Workers by the stage that the models' statuses name.", []string{"stage"}, nil),
		routersSilent: prometheus.NewDesc(prefix+"routers_silent",
			"Ready routers that have not answered for ten seconds and are left out.", nil, nil),
		expiry: prometheus.NewDesc(prefix+"certificate_seconds_to_expiry",
			"Seconds until the certificate that ends first ends, over all namespaces.", []string{"role"}, nil),
		models: reader, silent: silent, clock: c, ends: map[certificate]time.Time{},
	}
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	s.PodsCreated.Describe(ch)
	s.PodsDeleted.Describe(ch)
	ch <- s.workers
	ch <- s.routersSilent
	ch <- s.expiry
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	s.PodsCreated.Collect(ch)
	s.PodsDeleted.Collect(ch)
	ch <- prometheus.MustNewConstMetric(s.routersSilent, prometheus.GaugeValue, float64(s.silent()))
	for role, seconds := range s.secondsLeft() {
		ch <- prometheus.MustNewConstMetric(s.expiry, prometheus.GaugeValue, seconds, string(role))
	}
	stages, err := s.stages()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(s.workers, err)
		return
	}
	for stage, n := range stages {
		ch <- prometheus.MustNewConstMetric(s.workers, prometheus.GaugeValue, float64(n), stage)
	}
}

// Expires notes when the certificate of a role in a namespace ends, or the authority's, which has the role "ca" and no
// namespace. The zero time says that it is gone.
func (s *Set) Expires(namespace string, role identity.Role, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := certificate{namespace, role}
	if at.IsZero() {
		delete(s.ends, key)
		return
	}
	s.ends[key] = at
}

func (s *Set) secondsLeft() map[identity.Role]float64 {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[identity.Role]float64{}
	for key, at := range s.ends {
		if _, ok := left[key.role]; !ok {
			left[key.role] = math.Inf(1)
		}
		left[key.role] = min(left[key.role], at.Sub(now).Seconds())
	}
	return left
}

// stages counts the workers of all models. Every stage is there, so that a graph falls to 0 and not to nothing.
func (s *Set) stages() (map[string]int32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	models := &v1alpha1.InferenceModelList{}
	if err := s.models.List(ctx, models); err != nil {
		return nil, fmt.Errorf("list the models to count their workers: %w", err)
	}
	count := map[string]int32{stageInRing: 0, stageUnlisted: 0}
	for _, stage := range []v1alpha1.WorkerStage{
		v1alpha1.StagePending, v1alpha1.StageStarting, v1alpha1.StageFetching, v1alpha1.StageLoading,
		v1alpha1.StageLoaded, v1alpha1.StageFailed, v1alpha1.StageDraining,
	} {
		count[string(stage)] = 0
	}
	for i := range models.Items {
		st := &models.Items[i].Status
		var going int32
		for _, w := range st.Workers {
			count[string(w.Stage)]++
			if w.Stage == v1alpha1.StageDraining {
				going++ // not among the replicas
			}
		}
		inRing := deref(st.InRingReplicas)
		count[stageInRing] += inRing
		count[stageUnlisted] += max(deref(st.Replicas)-inRing-int32(len(st.Workers))+going, 0)
	}
	return count, nil
}

func deref(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// CountPods returns c, which counts the pods that are created and deleted through it.
func (s *Set) CountPods(c client.Client) client.Client { return counting{Client: c, set: s} }

type counting struct {
	client.Client
	set *Set
}

// Create implements client.Writer.
func (c counting) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if _, pod := obj.(*corev1.Pod); pod && err == nil {
		c.set.PodsCreated.Inc()
	}
	return err
}

// Delete implements client.Writer.
func (c counting) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, obj, opts...)
	if _, pod := obj.(*corev1.Pod); pod && err == nil {
		c.set.PodsDeleted.Inc()
	}
	return err
}
