package workerpool

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func TestAPoolSaysWhoUsesItAndWhetherANodeCould(t *testing.T) {
	for name, c := range map[string]struct {
		selector map[string]string
		seen     observed
		status   metav1.ConditionStatus
		reason   v1alpha1.Reason
		message  string
	}{
		"in use": {nil, observed{models: 1, workers: 2, nodes: 3}, metav1.ConditionTrue, v1alpha1.ReasonInUse,
			"1 model and 2 workers on 3 matching nodes"},
		"unused": {nil, observed{nodes: 1}, metav1.ConditionTrue, v1alpha1.ReasonUnused, "no model refers to the pool"},
		"no node matches": {map[string]string{"gpu": "yes", "a": "b"}, observed{models: 1}, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode,
			"no node has the labels a=b,gpu=yes of spec.nodeSelector; label a node or change the selector"},
		"a cluster without nodes": {nil, observed{}, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode, "the cluster has no node"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: v1alpha1.WorkerPoolSpec{NodeSelector: c.selector}}
			judge(pool, c.seen, time.Unix(1000, 0))
			got := pool.Status.Conditions[0]
			if got.Status != c.status || got.Reason != string(c.reason) || got.Message != c.message || got.ObservedGeneration != 7 {
				t.Errorf("Ready is %+v", got)
			}
			if *pool.Status.Models != c.seen.models || *pool.Status.Workers != c.seen.workers {
				t.Errorf("%d models and %d workers", *pool.Status.Models, *pool.Status.Workers)
			}
		})
	}
}
