package inferencerouter

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// state is two routers that serve, and changes of it.
type state struct {
	router  *v1alpha1.InferenceRouter
	seen    observed
	trouble string
}

func serving() *state {
	return &state{
		router: &v1alpha1.InferenceRouter{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "team-a", Generation: 3}},
		seen: observed{
			clusterIP: "10.0.0.9",
			deployment: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Generation: 1},
				Status:     appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
			},
			pods: []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Name: "r-1", Namespace: "team-a"}, Spec: corev1.PodSpec{NodeName: "n1"}},
				{ObjectMeta: metav1.ObjectMeta{Name: "r-2", Namespace: "team-a"}, Spec: corev1.PodSpec{NodeName: "n1"}},
			},
		},
	}
}

func noneReady(s *state) { s.seen.deployment.Status.ReadyReplicas = 0 }

func waiting(reason, message string) func(*state) {
	return func(s *state) {
		noneReady(s)
		s.seen.pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Image: "x/router:9", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}
}

func deploymentSays(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, message string) func(*state) {
	return func(s *state) {
		noneReady(s)
		s.seen.deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: kind, Status: status, Message: message}}
	}
}

func TestReadyAndProgressing(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*state)
		ready       v1alpha1.Reason
		status      metav1.ConditionStatus
		message     string
		progressing v1alpha1.Reason
	}{
		"all serve": {func(*state) {}, v1alpha1.ReasonRouting, metav1.ConditionTrue, "2 of 2 routers are Ready", v1alpha1.ReasonStable},
		"nothing is there yet": {func(s *state) { s.seen = observed{} },
			v1alpha1.ReasonRoutersStarting, metav1.ConditionFalse, "0 of 2", v1alpha1.ReasonRoutersStarting},
		"the only one serves": {func(s *state) { s.router.Spec.Replicas, s.seen.deployment.Status.ReadyReplicas = new(int32(1)), 1 },
			v1alpha1.ReasonRouting, metav1.ConditionTrue, "1 of 1 router is Ready", v1alpha1.ReasonScalingDown},
		"one is missing": {func(s *state) { s.seen.deployment.Status.ReadyReplicas = 1 },
			v1alpha1.ReasonRoutersStarting, metav1.ConditionFalse, "1 of 2 routers are Ready; the others are starting", v1alpha1.ReasonRoutersStarting},
		"a rollout leaves as many as wanted": {func(s *state) { s.seen.deployment.Status.Replicas, s.seen.deployment.Status.UpdatedReplicas = 3, 1 },
			v1alpha1.ReasonRouting, metav1.ConditionTrue, "2 of 2", v1alpha1.ReasonRollingOut},
		"there are too many": {func(s *state) { s.seen.deployment.Status.Replicas, s.seen.deployment.Status.UpdatedReplicas = 3, 3 },
			v1alpha1.ReasonRouting, metav1.ConditionTrue, "2 of 2", v1alpha1.ReasonScalingDown},
		"the Deployment was changed just now": {func(s *state) { s.seen.deployment.Generation = 2 },
			v1alpha1.ReasonRouting, metav1.ConditionTrue, "2 of 2", v1alpha1.ReasonRoutersStarting},
		"none is wanted": {func(s *state) {
			s.router.Spec.Replicas = new(int32(0))
			s.seen.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 1}
		}, v1alpha1.ReasonNotServing, metav1.ConditionFalse, "set it to 1 or more", v1alpha1.ReasonStable},
		"it is being deleted": {func(s *state) { s.router.DeletionTimestamp = &metav1.Time{} },
			v1alpha1.ReasonDeleting, metav1.ConditionFalse, "being deleted", v1alpha1.ReasonDeleting},
		"a call failed": {func(s *state) { s.trouble = "apply children: no" },
			v1alpha1.ReasonReconcileFailed, metav1.ConditionFalse, "2 of 2 routers are Ready; apply children: no", v1alpha1.ReasonReconcileFailed},
		"the image can't be pulled": {waiting("ImagePullBackOff", "not found"),
			v1alpha1.ReasonImagePullFailed, metav1.ConditionFalse, "node n1 can't get image x/router:9 for pod r-2 (ImagePullBackOff): not found", v1alpha1.ReasonRoutersStarting},
		"the image's user is refused": {waiting("CreateContainerConfigError", "runs as root"),
			v1alpha1.ReasonPodRejected, metav1.ConditionFalse, "r-2 (CreateContainerConfigError): runs as root", v1alpha1.ReasonRoutersStarting},
		"no node has room": {func(s *state) {
			noneReady(s)
			s.seen.pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"}}
		}, v1alpha1.ReasonUnschedulable, metav1.ConditionFalse, "no node takes pod r-1: 0/2 nodes", v1alpha1.ReasonRoutersStarting},
		"a router crashes": {func(s *state) {
			noneReady(s)
			s.seen.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 4, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "x\nrouter: no certificate"}}}}
		}, v1alpha1.ReasonRouterFailed, metav1.ConditionFalse, "ended 4 times, last with exit code 1 (Error): router: no certificate", v1alpha1.ReasonRoutersStarting},
		"a node evicted a router": {func(s *state) {
			noneReady(s)
			s.seen.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
		}, v1alpha1.ReasonPodRejected, metav1.ConditionFalse, "pod r-1 ended on node n1 (Evicted): low on memory", v1alpha1.ReasonRoutersStarting},
		"the trouble is a pod's that goes": {func(s *state) {
			waiting("ImagePullBackOff", "not found")(s)
			s.seen.pods[1].DeletionTimestamp = &metav1.Time{}
		}, v1alpha1.ReasonRoutersStarting, metav1.ConditionFalse, "0 of 2", v1alpha1.ReasonRoutersStarting},
		"a quota refuses pods": {deploymentSays(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "exceeded quota"),
			v1alpha1.ReasonPodRejected, metav1.ConditionFalse, "pods can't be created: exceeded quota", v1alpha1.ReasonRoutersStarting},
		"nothing comes for ten minutes": {deploymentSays(appsv1.DeploymentProgressing, corev1.ConditionFalse, "deadline"),
			v1alpha1.ReasonNotServing, metav1.ConditionFalse, "kubectl describe pods -n team-a -l app.kubernetes.io/component=router,inference.ringfleet.dev/router=default", v1alpha1.ReasonStable},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving()
			c.change(s)
			judge(s.router, s.seen, s.trouble, time.Unix(1000, 0))
			ready, progressing := condition(s.router, v1alpha1.Ready), condition(s.router, v1alpha1.Progressing)
			if ready.Status != c.status || ready.Reason != string(c.ready) || !strings.Contains(ready.Message, c.message) {
				t.Errorf("Ready is %s %s %q, want %s %s %q", ready.Status, ready.Reason, ready.Message, c.status, c.ready, c.message)
			}
			if progressing.Reason != string(c.progressing) {
				t.Errorf("Progressing is %s %q, want %s", progressing.Reason, progressing.Message, c.progressing)
			}
			if ready.ObservedGeneration != 3 || s.router.Status.ObservedGeneration != 3 {
				t.Error("the status does not speak of generation 3")
			}
		})
	}
}

func TestTheStatusSaysHowToReachTheRouters(t *testing.T) {
	s := serving()
	judge(s.router, s.seen, "", time.Unix(1000, 0))
	st := s.router.Status
	if st.Ready != "2/2" || *st.Replicas != 2 || *st.ReadyReplicas != 2 || st.URL != "http://default-router.team-a.svc/v1" || st.ClusterIP != "10.0.0.9" {
		t.Errorf("status %+v", st)
	}
	if st.Selector != "app.kubernetes.io/component=router,inference.ringfleet.dev/router=default" {
		t.Errorf("selector %s", st.Selector)
	}
}

func TestAConflictIsNoTrouble(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("services"), "x", errors.New("newer"))
	for err, want := range map[error]string{nil: "", conflict: "", errors.New("no"): "no"} {
		if got := problem(err); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
}
