package inferencerouter

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
)

// judge writes into router's status what seen and trouble mean at now. An empty trouble means that every call succeeded.
func judge(router *v1alpha1.InferenceRouter, seen observed, trouble string, now time.Time) {
	var replicas, ready int32
	if d := seen.deployment; d != nil {
		replicas, ready = d.Status.Replicas, d.Status.ReadyReplicas
	}
	st := &router.Status
	st.ObservedGeneration = router.Generation
	st.Replicas, st.ReadyReplicas = &replicas, &ready
	st.Ready = fmt.Sprintf("%d/%d", ready, desired.Replicas(router))
	st.Selector = labels.SelectorFromSet(desired.Selector(router)).String()
	st.URL = desired.URL(router)
	st.ClusterIP = seen.clusterIP
	conditions.Set(&st.Conditions, router.Generation, now,
		readyFinding(router, seen, trouble), progressingFinding(router, seen, trouble))
}

// problem is the text of a failed reconcile; a conflict is none.
func problem(err error) string {
	if err == nil || apierrors.IsConflict(err) {
		return ""
	}
	return err.Error()
}

// readyFinding judges whether clients are served by as many routers as wanted.
func readyFinding(router *v1alpha1.InferenceRouter, seen observed, trouble string) conditions.Finding {
	want := desired.Replicas(router)
	var ready int32
	if seen.deployment != nil {
		ready = seen.deployment.Status.ReadyReplicas
	}
	count := areReady(ready, want)
	notReady := func(why v1alpha1.Reason, message string) conditions.Finding {
		return conditions.False(v1alpha1.Ready, why, message)
	}
	found := troubleOf(seen.pods)
	switch {
	case router.DeletionTimestamp != nil:
		return notReady(v1alpha1.ReasonDeleting, "the router is being deleted; its pods finish the streams that they carry")
	case want == 0:
		return notReady(v1alpha1.ReasonNotServing, "spec.replicas is 0: no router is wanted; set it to 1 or more to serve")
	case trouble != "":
		return notReady(v1alpha1.ReasonReconcileFailed, count+"; "+trouble)
	case ready >= want:
		return conditions.True(v1alpha1.Ready, v1alpha1.ReasonRouting, count)
	case refusal(seen.deployment) != "":
		return notReady(v1alpha1.ReasonPodRejected, count+"; pods can't be created: "+refusal(seen.deployment))
	case found != nil:
		return notReady(found.reason, count+"; "+found.message)
	case ready == 0 && !starting(seen.deployment):
		return notReady(v1alpha1.ReasonNotServing, count+"; see kubectl describe pods -n "+router.Namespace+" -l "+router.Status.Selector)
	default:
		return notReady(v1alpha1.ReasonRoutersStarting, count+"; the others are starting")
	}
}

// areReady counts Ready routers in a phrase.
func areReady(ready, want int32) string {
	return fmt.Sprintf("%d of %s Ready", ready, conditions.Count(want, "router is", "routers are"))
}

// progressingFinding judges whether router pods are being changed.
func progressingFinding(router *v1alpha1.InferenceRouter, seen observed, trouble string) conditions.Finding {
	changing := func(why v1alpha1.Reason, message string) conditions.Finding {
		return conditions.True(v1alpha1.Progressing, why, message)
	}
	want, d := desired.Replicas(router), seen.deployment
	switch {
	case router.DeletionTimestamp != nil:
		return changing(v1alpha1.ReasonDeleting, "the router's pods are going")
	case trouble != "":
		return conditions.False(v1alpha1.Progressing, v1alpha1.ReasonReconcileFailed, trouble)
	case d == nil || d.Status.ObservedGeneration < d.Generation:
		return changing(v1alpha1.ReasonRoutersStarting, "the router's Deployment is being brought up to date")
	case d.Status.ReadyReplicas < want && !starting(d):
		return conditions.False(v1alpha1.Progressing, v1alpha1.ReasonStable,
			areReady(d.Status.ReadyReplicas, want)+" and no more became so in ten minutes; see the condition Ready")
	case d.Status.Replicas > d.Status.UpdatedReplicas:
		return changing(v1alpha1.ReasonRollingOut, fmt.Sprintf("%d of %s of the newest revision, %d of an older one",
			d.Status.UpdatedReplicas, conditions.Count(want, "router is", "routers are"), d.Status.Replicas-d.Status.UpdatedReplicas))
	case d.Status.Replicas > want:
		return changing(v1alpha1.ReasonScalingDown, fmt.Sprintf("%s, %d wanted", conditions.Count(d.Status.Replicas, "router", "routers"), want))
	case d.Status.UpdatedReplicas < want || d.Status.ReadyReplicas < want:
		return changing(v1alpha1.ReasonRoutersStarting, areReady(d.Status.ReadyReplicas, want))
	default:
		return conditions.False(v1alpha1.Progressing, v1alpha1.ReasonStable, "nothing is being changed")
	}
}

// refusal is why the Deployment can't create pods, such as a quota or a policy.
func refusal(d *appsv1.Deployment) string {
	if c := deploymentCondition(d, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return c.Message
	}
	return ""
}

// starting reports whether the Deployment's controller still expects progress.
func starting(d *appsv1.Deployment) bool {
	c := deploymentCondition(d, appsv1.DeploymentProgressing)
	return c == nil || c.Status != corev1.ConditionFalse
}

func deploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	if d == nil {
		return nil
	}
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == kind {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

// condition returns the condition of one type, or an empty one.
func condition(router *v1alpha1.InferenceRouter, t v1alpha1.ConditionType) metav1.Condition {
	for _, c := range router.Status.Conditions {
		if c.Type == string(t) {
			return c
		}
	}
	return metav1.Condition{}
}
