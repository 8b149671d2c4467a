package inferencemodel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// picture is a model of one worker, p, that serves, with one change.
func picture(change ...func(*scope)) *scope {
	m := model("m", "1", 1)
	m.Generation = 3
	m.Spec.Weights.URI = "oci://example.com/w:1"
	m.Spec.PoolRef.Name = "gpu"
	s := &scope{
		now: time.Unix(100, 0), model: &m, counted: true,
		pool:   &v1alpha1.WorkerPool{},
		router: &v1alpha1.InferenceRouter{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		names:  []string{"m"},
		want:   wanted{replicas: 1, revision: "r"},
	}
	s.router.Status.URL = "http://default-router.n.svc/v1"
	s.view.Routers = []RouterView{routerWith("r1", "a", true)}
	with(pod("p", gatedFor("a")))(s)
	for _, c := range change {
		c(s)
	}
	return s
}

// with makes pods the workers, as the view has them.
func with(pods ...*corev1.Pod) func(*scope) {
	return func(s *scope) {
		s.workers = nil
		for _, p := range pods {
			s.workers = append(s.workers, observeWorker(p, s.view))
		}
	}
}

// saying makes p a worker that is not in the ring and says w.
func saying(w WorkerView) func(*scope) {
	return func(s *scope) {
		w.Instance = "a"
		s.view.Routers = []RouterView{{Pod: "r1", Answered: true, Workers: map[types.UID]WorkerView{"uid-p": w}}}
		with(pod("p"))(s)
	}
}

func inState(st corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = st }
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return inState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func unscheduled(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.ContainerStatuses = "", nil
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

func crashing(p *corev1.Pod) {
	waitingFor("CrashLoopBackOff", "back-off 10s")(p)
	c := &p.Status.ContainerStatuses[0]
	c.RestartCount = 2
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "flag a\nno library"}
}

// behind puts the worker's container behind another one of the pod that is in a state.
func behind(name string, st corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: name, Image: "example.com/" + name + ":1"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: name, State: st, RestartCount: 2, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "unknown flag"}}}}
		waitingFor("PodInitializing", "")(p)
	}
}

// running puts the worker's container into its running state.
func running(p *corev1.Pod) {
	inState(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})(p)
}

// unready is what Kubernetes makes of a pod whose node is silent.
func unready(p *corev1.Pod) {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			p.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
}

func evicted(p *corev1.Pod) {
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
}

func ofRevision(r string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelRevision: r} }
}

// statuses name what each condition says: "status reason", and a part of the message after ": " where it matters.
var statuses = map[string]struct {
	s    *scope
	err  error
	want string
}{
	"all is well": {s: picture(), want: `Ready: True Serving: 1 of 1 worker in the ring
		Progressing: False Stable
		WeightsCached: True WeightsLoaded: 1 of 1 worker has loaded oci://example.com/w:1
		RouterReady: True RoutersReady: 1 router is Ready
		NamesAccepted: True NamesFree: served as m`},
	"a worker loads": {s: picture(saying(WorkerView{Stage: v1alpha1.StageLoading, Percent: new(int32(62))})), want: `
		Ready: False WorkersStarting: 0 of 1 worker in the ring: pod p on node n1 is Loading (62 %)
		Progressing: True WorkersStarting
		WeightsCached: Unknown WeightsPending: 0 of 1`},
	"a worker is loaded, a router has not taken it": {s: picture(saying(WorkerView{Stage: v1alpha1.StageLoaded, Loaded: true, LastError: "refused"})), want: `
		Ready: False WorkersStarting: pod p on node n1 is Loaded: not in the ring of r1: refused
		WeightsCached: True WeightsLoaded`},
	"an error that names another port each time": {s: picture(saying(WorkerView{Stage: v1alpha1.StageLoaded, Loaded: true,
		LastError: "read tcp 10.0.0.1:40312->10.0.0.2:9443: connection reset by peer"})), want: `
		Ready: False WorkersStarting: not in the ring of r1: read tcp 10.0.0.2:9443: connection reset by peer`},
	"a worker's node is lost": {s: picture(func(s *scope) {
		lost := old(routerWith("r1", "a", false))
		s.view.Routers = []RouterView{lost}
		with(pod("p", gatedFor("a"), unready))(s)
	}), want: `
		Ready: False WorkersStarting: 0 of 1 worker in the ring: pod p on node n1 is Starting: no report from it for 10s, see whether node n1 is Ready
		WeightsCached: Unknown WeightsPending: 0 of 1`},
	"a worker refuses its weights": {s: picture(saying(WorkerView{Stage: v1alpha1.StageFailed, Reason: "WeightsTruncated", Message: "x.gguf has 3 bytes"})), want: `
		Ready: False WeightsNotUsable: x.gguf has 3 bytes
		Progressing: False WeightsNotUsable
		WeightsCached: False WeightsTruncated: pod p on node n1 is Failed: x.gguf has 3 bytes`},
	"a worker fails for another reason": {s: picture(saying(WorkerView{Stage: v1alpha1.StageFailed, Reason: "LibraryMissing", Message: "no libllama"})), want: `
		Ready: False WorkerFailed: no libllama
		WeightsCached: Unknown WeightsPending`},
	"no node has room": {s: picture(with(pod("p", unscheduled("0/2 nodes: Insufficient cpu")))), want: `
		Ready: False Unschedulable: the scheduler says: 0/2 nodes: Insufficient cpu; free room, add a node
		Progressing: False Unschedulable`},
	"the claim of the weights does not exist": {s: picture(func(s *scope) { s.model.Spec.Weights.URI = "pvc://claim/x" },
		with(pod("p", unscheduled(`persistentvolumeclaim "claim" not found`)))), want: `
		Ready: False WeightsNotUsable
		WeightsCached: False WeightsPullFailed: persistentvolumeclaim "claim" not found`},
	"the worker's image can't be pulled": {s: picture(with(pod("p", waitingFor("ErrImagePull", `pull "docker.io/ringfleet/worker:dev": not found`)))), want: `
		Ready: False ImagePullFailed: image ringfleet/worker:dev: ErrImagePull: pull "docker.io/ringfleet/worker:dev": not found; correct engine.image
		Progressing: False ImagePullFailed
		WeightsCached: Unknown WeightsPending`},
	"the weights' image can't be pulled": {s: picture(with(pod("p", waitingFor("ImagePullBackOff", `Back-off pulling image "example.com/w:1"`)))), want: `
		Ready: False WeightsNotUsable
		Progressing: False WeightsNotUsable
		WeightsCached: False WeightsPullFailed: weights oci://example.com/w:1: ImagePullBackOff: Back-off pulling image "example.com/w:1"; correct spec.weights`},
	"the weights' image can't be mounted": {s: picture(with(pod("p", waitingFor("CreateContainerError", "ImageVolumeMountFailed: bad layer")))), want: `
		Ready: False WeightsNotUsable
		WeightsCached: False WeightsPullFailed: bad layer`},
	"the folder of the weights does not exist": {s: picture(func(s *scope) { s.model.Spec.Weights.URI = "pvc://claim/x" },
		with(pod("p", waitingFor("CreateContainerConfigError", `failed to create subPath directory for volumeMount "weights" of container "worker"`)))), want: `
		Ready: False WeightsNotUsable
		WeightsCached: False WeightsPullFailed: weights pvc://claim/x: CreateContainerConfigError: failed to create subPath`},
	"the process ends again and again": {s: picture(with(pod("p", crashing))), want: `
		Ready: False WorkerFailed: its process ended 3 times, the last time: exit code 2 (Error): no library
		Progressing: False WorkerFailed`},
	"the weights are fetched before the engine starts": {s: picture(func(s *scope) {
		s.view.Routers = []RouterView{{Pod: "r1", Answered: true, Workers: map[types.UID]WorkerView{"uid-p": {
			Instance: "a", Stage: v1alpha1.StageFetching, Percent: new(int32(40)), Message: "fetching x.gguf, 40 MiB of 98 MiB"}}}}
		with(pod("p", behind("weights", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))(s)
	}), want: `
		Ready: False WorkersStarting: 0 of 1 worker in the ring: pod p on node n1 is Fetching (40 %): fetching x.gguf, 40 MiB of 98 MiB
		WeightsCached: Unknown WeightsPending`},
	"the weights can't be fetched": {s: picture(func(s *scope) {
		s.view.Routers = []RouterView{{Pod: "r1", Answered: true, Workers: map[types.UID]WorkerView{"uid-p": {
			Instance: "a", Stage: v1alpha1.StageFailed, Reason: "WeightsUnauthorized", Message: "the hub answers 401"}}}}
		with(pod("p", behind("weights", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})))(s)
	}), want: `
		Ready: False WeightsNotUsable: the hub answers 401
		WeightsCached: False WeightsUnauthorized: pod p on node n1 is Failed: the hub answers 401`},
	"the engine's image can't be pulled": {s: picture(with(pod("p", behind("engine",
		corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}})))), want: `
		Ready: False ImagePullFailed: image example.com/engine:1: ErrImagePull: not found; correct engine.image`},
	"the engine ends again and again": {s: picture(with(pod("p", behind("engine",
		corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}), running))), want: `
		Ready: False WorkerFailed: the process of container engine ended 3 times, the last time: exit code 1: unknown flag`},
	"a node evicts the pod": {s: picture(with(pod("p", evicted))), want: `
		Ready: False PodRejected: the pod ended: Evicted: low on memory`},
	"the API server refuses the pod": {s: picture(with(), func(s *scope) { s.rejected = errors.New("exceeded quota") }), want: `
		Ready: False PodRejected: 0 of 1 worker in the ring: exceeded quota
		Progressing: False PodRejected`},
	"no pool": {s: picture(with(), func(s *scope) { s.pool, s.want.revision = nil, "" }), want: `
		Ready: False PoolNotFound: WorkerPool gpu does not exist in namespace n: create it, or name another in spec.poolRef
		Progressing: False PoolNotFound`},
	"no router": {s: picture(func(s *scope) { s.view = View{} }), want: `
		Ready: False RouterNotReady: kubectl -n n describe inferencerouter default
		RouterReady: False NoRouterReady`},
	"a router is silent": {s: picture(func(s *scope) { s.view.Routers = append(s.view.Routers, quiet("r2", time.Minute)) }), want: `
		Ready: True Serving
		RouterReady: False RouterSilent: 1 of 2 routers have not answered for 10s; left out until then: r2; see their logs`},
	"every router is silent": {s: picture(func(s *scope) { s.view.Routers = []RouterView{quiet("r1", time.Minute)} }), want: `
		Ready: False RouterNotReady
		RouterReady: False RouterSilent`},
	"asleep": {s: picture(with(), func(s *scope) { s.want.replicas = 0 }), want: `
		Ready: True ScaledToZero
		Progressing: False Stable
		WeightsCached: Unknown WeightsPending`},
	"falling asleep": {s: picture(func(s *scope) { s.want.replicas = 0 }, with(pod("p", gatedFor("a"), leaving))), want: `
		Ready: True ScaledToZero
		Progressing: True ScalingDown`},
	"a rollout": {s: picture(with(pod("p", gatedFor("a")), pod("o", gatedFor("b"), ofRevision("old")))), want: `
		Ready: False RollingOut: 1 of 1 worker in the ring, and 1 of an older revision
		Progressing: True RollingOut: 1 worker has revision r, 1 an older one`},
	"a rollout to something broken": {s: picture(with(pod("p", crashing), pod("o", gatedFor("b"), ofRevision("old")))), want: `
		Ready: False WorkerFailed
		Progressing: False WorkerFailed`},
	"all names are taken": {s: picture(func(s *scope) { s.names, s.lost = nil, []taken{{"m", "elder"}} }), want: `
		Ready: False NameTaken: m belongs to InferenceModel elder, which is older: choose another name in spec.modelName, spec.aliases or spec.adapters
		NamesAccepted: False NameTaken`},
	"one name is taken": {s: picture(func(s *scope) { s.lost = []taken{{"x", "elder"}} }), want: `
		Ready: True Serving
		NamesAccepted: False NameTaken: x belongs to InferenceModel elder`},
	"being deleted": {s: picture(func(s *scope) { s.model.DeletionTimestamp = &metav1.Time{} }), want: `
		Ready: False Deleting: 1 worker is left
		Progressing: True Deleting`},
	"a call fails while a worker is missing": {s: picture(with()), err: errors.New("create workers: timeout"), want: `
		Ready: False ReconcileFailed: create workers: timeout
		Progressing: True ReconcileFailed`},
	"a call fails while all is well": {s: picture(), err: errors.New("timeout"), want: `
		Ready: True Serving
		Progressing: True ReconcileFailed: timeout`},
}

func TestWhatTheStatusSays(t *testing.T) {
	for name, c := range statuses {
		t.Run(name, func(t *testing.T) {
			st := status(c.s, c.err)
			if len(st.Conditions) != 6 || st.ObservedGeneration != 3 {
				t.Fatalf("got %d conditions for generation %d", len(st.Conditions), st.ObservedGeneration)
			}
			for line := range strings.Lines(c.want) {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				parts := strings.SplitN(line, ": ", 3)
				got := meta.FindStatusCondition(st.Conditions, parts[0])
				if got == nil || fmt.Sprintf("%s %s", got.Status, got.Reason) != parts[1] ||
					len(parts) == 3 && !strings.Contains(got.Message, parts[2]) {
					t.Errorf("want %s\n got %+v", line, got)
				}
			}
		})
	}
}

func TestAWorkerThatWaitsForLongSaysWhereToLook(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		want   string
	}{
		"a while":     {time.Minute, "images and volumes are on their way to node n1"},
		"a long time": {time.Minute + time.Second, "images and volumes are on their way to node n1; see kubectl describe pod p if it stays"},
	} {
		t.Run(name, func(t *testing.T) {
			s := picture()
			with(pod("p", waitingFor("ContainerCreating", ""), func(p *corev1.Pod) {
				p.Status.StartTime = &metav1.Time{Time: s.now.Add(-c.waited)}
			}))(s)
			st := status(s, nil)
			if len(st.Workers) != 1 || st.Workers[0].Message != c.want {
				t.Errorf("got %+v, want %q", st.Workers, c.want)
			}
		})
	}
}

func TestReadySaysWhichBoundReplicasMeet(t *testing.T) {
	for name, c := range map[string]struct {
		asked, lo, hi int32
		want          string
	}{
		"within the bounds": {2, 1, 4, "1 of 2 workers in the ring: the rest are being created"},
		"too many":          {9, 1, 4, "1 of 4 workers in the ring: the rest are being created; 9 were asked for; scaling.maxReplicas is 4"},
		"too few":           {0, 1, 4, "1 of 1 worker in the ring; 0 were asked for; scaling.minReplicas is 1"},
		"one is too many":   {1, 0, 0, "1 was asked for; scaling.maxReplicas is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := picture(func(s *scope) {
				s.model.Spec.Replicas = &c.asked
				s.model.Spec.Scaling.MinReplicas, s.model.Spec.Scaling.MaxReplicas = &c.lo, &c.hi
				s.want = want(s.model, "r")
			})
			ready := meta.FindStatusCondition(status(s, nil).Conditions, "Ready")
			if !strings.HasSuffix(ready.Message, c.want) {
				t.Errorf("got %q, want %q at the end", ready.Message, c.want)
			}
		})
	}
}

func TestTheStatusIsWrittenOnceForOneState(t *testing.T) {
	for name, c := range statuses {
		first := status(c.s, c.err)
		again := *c.s
		again.model = c.s.model.DeepCopy()
		again.model.Status = first
		again.now = c.s.now.Add(time.Hour)
		if second := status(&again, c.err); fmt.Sprintf("%+v", second) != fmt.Sprintf("%+v", first) && !sameText(first, second) {
			t.Errorf("%s: time alone changes the status:\n%+v\n%+v", name, first, second)
		}
	}
}

// sameText compares statuses by what they say, not by the addresses of their numbers.
func sameText(a, b v1alpha1.InferenceModelStatus) bool {
	return fmt.Sprintf("%+v %v %s", a.Conditions, len(a.Workers), a.InRing) == fmt.Sprintf("%+v %v %s", b.Conditions, len(b.Workers), b.InRing)
}

func TestTheStatusCountsAndListsWorkers(t *testing.T) {
	s := picture(func(s *scope) { s.want.replicas = 3 }, with(
		pod("p", gatedFor("a")), pod("q", crashing), pod("z", gatedFor("c"), leaving)))
	st := status(s, nil)
	if *st.Replicas != 2 || *st.LoadedReplicas != 1 || *st.InRingReplicas != 1 || st.InRing != "1/3" {
		t.Errorf("got %d replicas, %d loaded, %s in ring", *st.Replicas, *st.LoadedReplicas, st.InRing)
	}
	if st.URL != "http://default-router.n.svc/v1" || st.Selector != "inference.ringfleet.dev/model-uid=1" || st.Revision != "r" {
		t.Errorf("got URL %q, selector %q, revision %q", st.URL, st.Selector, st.Revision)
	}
	if len(st.Workers) != 2 || st.Workers[0].Stage != v1alpha1.StageFailed || st.Workers[1].Stage != v1alpha1.StageDraining {
		t.Errorf("got workers %+v, want q Failed and z Draining", st.Workers)
	}
}

func TestAStatusOfNothingObservedKeepsWhatWasSaid(t *testing.T) {
	s := picture()
	s.model.Status = status(s, nil)
	s.counted, s.workers = false, nil
	st := status(s, errors.New("ask the routers: no"))
	if st.InRing != "1/1" || !meta.IsStatusConditionTrue(st.Conditions, "Ready") {
		t.Errorf("got %+v, want the counts and Ready as they were", st)
	}
	if c := meta.FindStatusCondition(st.Conditions, "Progressing"); c.Reason != string(v1alpha1.ReasonReconcileFailed) {
		t.Errorf("got %+v, want ReconcileFailed", c)
	}
}
