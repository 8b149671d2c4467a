package inferencemodel

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// pod is a running worker pod of the model "m" with one change.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID("uid-" + name),
			Labels: map[string]string{v1alpha1.LabelRevision: "r"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "worker", Image: "ringfleet/worker:dev"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "worker", ContainerID: "containerd://c1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// gatedFor opens the gate for an instance in the container of pod.
func gatedFor(instance string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationInRingInstance: instance, v1alpha1.AnnotationInRingContainer: "containerd://c1"}
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: v1alpha1.GateInRing, Status: corev1.ConditionTrue},
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
}

// closed shuts the gate and leaves its annotations, as the manager does when the instance is gone.
func closed(p *corev1.Pod) {
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].Status = corev1.ConditionFalse
	}
}

func restarted(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://c2" }
func dead(p *corev1.Pod)      { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }
func leaving(p *corev1.Pod)   { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// routerWith answers with one worker, uid-p.
func routerWith(name, instance string, inRing bool) RouterView {
	return RouterView{Pod: name, Answered: true, Workers: map[types.UID]WorkerView{
		"uid-p": {Instance: instance, InRing: inRing, Loaded: true, Stage: v1alpha1.StageLoaded},
	}}
}

func quiet(name string, since time.Duration) RouterView { return RouterView{Pod: name, Silence: since} }

func old(r RouterView) RouterView {
	w := r.Workers["uid-p"]
	w.Age = time.Minute
	r.Workers["uid-p"] = w
	return r
}

func TestTheGate(t *testing.T) {
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		routers []RouterView
		want    string // "", "closes" or "opens for INSTANCE"
	}{
		"stays shut without a router":                              {pod("p"), nil, ""},
		"stays shut while one router has not taken it":             {pod("p"), []RouterView{routerWith("r1", "a", true), routerWith("r2", "a", false)}, ""},
		"opens when all routers have the instance":                 {pod("p"), []RouterView{routerWith("r1", "a", true), routerWith("r2", "a", true)}, "opens for a"},
		"stays shut while routers have different instances":        {pod("p"), []RouterView{routerWith("r1", "a", true), routerWith("r2", "b", true)}, ""},
		"waits for a router that has just fallen silent":           {pod("p"), []RouterView{routerWith("r1", "a", true), quiet("r2", 9*time.Second)}, ""},
		"leaves out a router that is silent for ten seconds":       {pod("p"), []RouterView{routerWith("r1", "a", true), quiet("r2", 10*time.Second)}, "opens for a"},
		"stays shut when only silent routers are left":             {pod("p"), []RouterView{quiet("r2", time.Minute)}, ""},
		"stays shut while no container runs":                       {pod("p", dead), []RouterView{routerWith("r1", "a", true)}, ""},
		"stays as it is on a pod that goes":                        {pod("p", leaving), []RouterView{routerWith("r1", "a", true)}, ""},
		"stays open when a router lost the worker":                 {pod("p", gatedFor("a")), []RouterView{routerWith("r1", "a", false)}, ""},
		"stays open when a router restarts and knows nothing":      {pod("p", gatedFor("a")), []RouterView{{Pod: "r1", Answered: true}}, ""},
		"stays open when no router is left":                        {pod("p", gatedFor("a")), nil, ""},
		"closes when a router reports another instance":            {pod("p", gatedFor("a")), []RouterView{routerWith("r1", "b", false)}, "closes"},
		"does not close for an old report":                         {pod("p", gatedFor("a")), []RouterView{old(routerWith("r1", "b", true))}, ""},
		"closes when another container runs":                       {pod("p", gatedFor("a"), restarted), []RouterView{routerWith("r1", "a", true)}, "closes"},
		"stays shut for an instance that ended with its container": {pod("p", gatedFor("a"), closed, restarted), []RouterView{routerWith("r1", "a", true)}, ""},
		"opens for the instance after it":                          {pod("p", gatedFor("a"), closed, restarted), []RouterView{routerWith("r1", "b", true)}, "opens for b"},
		"closes when no container runs":                            {pod("p", gatedFor("a"), dead), nil, "closes"},
	} {
		t.Run(name, func(t *testing.T) {
			v := View{Routers: c.routers}
			g, change := judgeGate(observeWorker(c.pod, v), v)
			got := ""
			switch {
			case change && g.opens():
				got = "opens for " + g.instance
				if g.container != c.pod.Status.ContainerStatuses[0].ContainerID {
					t.Errorf("opens for container %q", g.container)
				}
			case change:
				got = "closes"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
