//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// long is a question whose answer fills its tokens.
func long(model, session string, tokens int) question {
	return question{model: model, session: session, stream: true, maxTokens: tokens,
		prompt: "Write a very long story about a lighthouse keeper and the sea. Never stop."}
}

func TestALostWorkerIsReplaced(t *testing.T) {
	ns := namespace(t, "e2e-lost")
	m := model(t, ns, "lost", replicas(2))
	untilReady(t, m)
	victim := workers(t, m)[0]
	if err := api.Delete(t.Context(), &victim, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, "another worker is in the ring", func(context.Context) (bool, string, error) {
		live := workers(t, m)
		in := 0
		for _, p := range live {
			if p.UID != victim.UID && cluster.InRing(&p) {
				in++
			}
		}
		return in == 2, fmt.Sprintf("%d of %d pods in the ring", in, len(live)), nil
	})
	bounded(t, m)
	record("force-deleted worker to its successor in the ring", took.Seconds(), "s", 8)
}

func TestTheStreamsOfAKilledProcessGoOnElsewhere(t *testing.T) {
	ns := namespace(t, "e2e-killed")
	m := model(t, ns, "killed", replicas(2))
	untilReady(t, m)
	url := base(t, ns)
	const requests = 20
	var wg sync.WaitGroup
	outcomes, pauses := make([]outcome, requests), make([]time.Duration, requests)
	begun := make(chan string, 4096)
	for i := range requests {
		wg.Go(func() {
			last := time.Time{}
			outcomes[i] = post(t.Context(), url, long("killed", fmt.Sprint("session-", i), 120), func(o outcome) {
				now := time.Now()
				if !last.IsZero() {
					pauses[i] = max(pauses[i], now.Sub(last))
				}
				if last = now; o.text != "" && o.finish == "" {
					begun <- o.worker
				}
			})
		})
	}
	victim := ""
	select {
	case victim = <-begun:
	case <-time.After(hangs):
		t.Fatal("no stream has begun")
	}
	before := instances(t, m)
	kill(t, m, victim)
	bounded(t, m)
	recovered(t, m, victim, before[victim])
	bounded(t, m)
	wg.Wait()
	moved, longest := 0, time.Duration(0)
	for i, o := range outcomes {
		if !o.good() || !o.done {
			t.Errorf("request %d: %s", i, o)
		}
		if o.worker == victim {
			moved, longest = moved+1, max(longest, pauses[i])
		}
	}
	if moved == 0 {
		t.Error("no stream had begun on the worker that was killed")
	}
	record("longest pause of a stream whose worker was killed", longest.Seconds(), "s", 5)
	t.Logf("%d of %d streams began on the worker that was killed; the longest pause was %s", moved, requests, longest)
}

func TestAModelThatSleepsWakesForItsFirstRequest(t *testing.T) {
	ns := namespace(t, "e2e-sleeps")
	m := model(t, ns, "sleeper", replicas(0), func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = new(int32(0)) })
	untilCondition(t, m, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonScaledToZero)
	url := base(t, ns)
	began := time.Now()
	raised := make(chan time.Duration, 1)
	go func() { raised <- untilWanted(t.Context(), m, began) }()
	const requests = 10
	outcomes := make([]outcome, requests)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			outcomes[i] = post(t.Context(), url, question{model: "sleeper", prompt: "Say a word.", stream: i%2 == 0, maxTokens: 8}, nil)
		})
	}
	wg.Wait()
	record("first answers of a model that slept", time.Since(began).Seconds(), "s", 30)
	if took := <-raised; took > 0 {
		record("first request of a model that slept to spec.replicas being 1", took.Seconds(), "s", 1)
	} else {
		t.Error("spec.replicas of the model never became 1")
	}
	for i, o := range outcomes {
		if !o.good() {
			t.Errorf("request %d: %s", i, o)
		}
	}
	if n := len(workers(t, m)); n != 1 {
		t.Errorf("%d workers were made for the requests, want one", n)
	}
	bounded(t, m)
}

// untilWanted waits until spec.replicas of a model is 1, and returns how long that took from began; 0 where it never was.
func untilWanted(ctx context.Context, m *v1alpha1.InferenceModel, began time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var now v1alpha1.InferenceModel
		if err := api.Get(ctx, client.ObjectKeyFromObject(m), &now); err == nil && now.Spec.Replicas != nil && *now.Spec.Replicas == 1 {
			return time.Since(began)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0
		}
	}
}

// recovered waits until the new process of a worker is in the ring, and records how long that took from the moment that
// it had loaded the model.
func recovered(t *testing.T, m *v1alpha1.InferenceModel, victim, instance string) {
	t.Helper()
	loaded := time.Time{}
	eventually(t, "the new process has loaded the model", func(context.Context) (bool, string, error) {
		for _, p := range workers(t, m) {
			for _, c := range p.Status.ContainerStatuses {
				if p.Name == victim && c.RestartCount > 0 && c.Ready {
					loaded = time.Now()
					return true, "", nil
				}
			}
		}
		return false, "not Ready", nil
	})
	eventually(t, "the ring is whole again, with the new instance", func(context.Context) (bool, string, error) {
		now := instances(t, m)
		return len(now) == len(workers(t, m)) && now[victim] != instance, fmt.Sprint(now), nil
	})
	record("loaded again after SIGKILL to the ring being whole", time.Since(loaded).Seconds(), "s", 2.5)
}

// instances returns the instance that is in the ring for each worker that has one there.
func instances(t *testing.T, m *v1alpha1.InferenceModel) map[string]string {
	t.Helper()
	in := map[string]string{}
	for _, p := range workers(t, m) {
		if cluster.InRing(&p) {
			in[p.Name] = p.Annotations[v1alpha1.AnnotationInRingInstance]
		}
	}
	return in
}

func TestRollingRestartsOfTheRoutersCutNoStream(t *testing.T) {
	ns := namespace(t, "e2e-rolling")
	m := model(t, ns, "rolling")
	untilReady(t, m)
	url := base(t, ns)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var outcomes []outcome
	for i := range 4 { // streams of about twenty seconds, one after another
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				o := post(t.Context(), url, long("rolling", fmt.Sprint("s", i, "-", n), 500), nil)
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
			}
		})
	}
	for restart := range 3 {
		var d appsv1.DeploymentList
		if err := api.List(t.Context(), &d, client.InNamespace(ns), client.HasLabels{v1alpha1.LabelRouter}); err != nil || len(d.Items) != 1 {
			t.Fatalf("%d router Deployments: %v", len(d.Items), err)
		}
		deployment := d.Items[0]
		patch := client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"%d"}}}}}`, restart))
		if err := api.Patch(t.Context(), &deployment, patch); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the routers are new ones", func(ctx context.Context) (bool, string, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(&deployment), &deployment)
			s := deployment.Status
			return s.ObservedGeneration == deployment.Generation && s.UpdatedReplicas == *deployment.Spec.Replicas &&
				s.AvailableReplicas == s.UpdatedReplicas && s.Replicas == s.UpdatedReplicas, fmt.Sprintf("%+v", s), err
		})
	}
	stop()
	wg.Wait()
	cut := 0
	for _, o := range outcomes {
		if !o.good() || !o.done {
			cut++
			t.Errorf("a stream was cut: %s", o)
		}
	}
	bounded(t, m)
	record("streams cut by three rolling restarts of the routers", float64(cut), "streams", 0)
	t.Logf("%d streams, %d cut", len(outcomes), cut)
	for _, p := range workers(t, m) {
		if !cluster.InRing(&p) {
			t.Errorf("worker %s fell out of the ring by a restart of the routers", p.Name)
		}
	}
}

func TestADrainedWorkerFinishesItsStreams(t *testing.T) {
	ns := namespace(t, "e2e-drain")
	m := model(t, ns, "drain", replicas(2))
	untilReady(t, m)
	url := base(t, ns)
	var wg sync.WaitGroup
	outcomes := make([]outcome, 8)
	begun := make(chan struct{}, 4096)
	for i := range outcomes {
		wg.Go(func() {
			outcomes[i] = post(t.Context(), url, long("drain", fmt.Sprint("d", i), 200), func(outcome) { begun <- struct{}{} })
		})
	}
	for range 2 * len(outcomes) {
		<-begun
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))
	if err := api.Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, o := range outcomes {
		if !o.good() || !o.done {
			t.Errorf("stream %d was cut by scaling down: %s", i, o)
		}
	}
	eventually(t, "one worker is left", func(ctx context.Context) (bool, string, error) {
		var pods corev1.PodList
		err := api.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)})
		return len(pods.Items) == 1, fmt.Sprint(len(pods.Items)), err
	})
	untilCondition(t, m, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonServing)
	bounded(t, m)
}
