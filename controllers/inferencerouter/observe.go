package inferencerouter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
)

// observed is what the cluster has of a router. Its zero value says that nothing is there.
type observed struct {
	deployment *appsv1.Deployment
	clusterIP  string
	pods       []corev1.Pod // in the order of their names
}

// observe reads the children.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.router.Namespace, Name: desired.Name(s.router)}
	deployment, service, pods := &appsv1.Deployment{}, &corev1.Service{}, &corev1.PodList{}
	err := r.Client.Get(ctx, key, deployment)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Deployment %s: %w", key, err)
	}
	if err == nil {
		s.seen.deployment = deployment
	}
	if err := r.Client.Get(ctx, key, service); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Service %s: %w", key, err)
	}
	s.seen.clusterIP = service.Spec.ClusterIP
	if err := r.Client.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels(desired.Selector(s.router))); err != nil {
		return fmt.Errorf("list the pods of Deployment %s: %w", key, err)
	}
	s.seen.pods = pods.Items
	slices.SortFunc(s.seen.pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// trouble is why a pod is not Ready.
type trouble struct {
	reason  v1alpha1.Reason
	message string
}

// A check finds one kind of trouble of a pod, or returns nil.
type check func(pod *corev1.Pod) *trouble

var checks = []check{unschedulable, imageMissing, misconfigured, crashing, rejected}

// troubleOf returns the trouble of the first pod that has any.
func troubleOf(pods []corev1.Pod) *trouble {
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		for _, c := range checks {
			if t := c(&pods[i]); t != nil {
				return t
			}
		}
	}
	return nil
}

func unschedulable(pod *corev1.Pod) *trouble {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &trouble{v1alpha1.ReasonUnschedulable,
				fmt.Sprintf("no node takes pod %s: %s; free room, add a node, or lower spec.replicas", pod.Name, c.Message)}
		}
	}
	return nil
}

func imageMissing(pod *corev1.Pod) *trouble {
	for _, c := range pod.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			return &trouble{v1alpha1.ReasonImagePullFailed,
				fmt.Sprintf("node %s can't get image %s for pod %s (%s): %s; correct spec.image or the node's access to the registry",
					pod.Spec.NodeName, c.Image, pod.Name, w.Reason, w.Message)}
		}
	}
	return nil
}

func misconfigured(pod *corev1.Pod) *trouble {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "CreateContainerConfigError" || w.Reason == "CreateContainerError" || w.Reason == "RunContainerError") {
			return &trouble{v1alpha1.ReasonPodRejected,
				fmt.Sprintf("node %s can't start pod %s (%s): %s", pod.Spec.NodeName, pod.Name, w.Reason, w.Message)}
		}
	}
	return nil
}

func crashing(pod *corev1.Pod) *trouble {
	for _, c := range pod.Status.ContainerStatuses {
		end := c.LastTerminationState.Terminated
		if end == nil || c.Ready || c.RestartCount == 0 {
			continue
		}
		return &trouble{v1alpha1.ReasonRouterFailed,
			fmt.Sprintf("the router in pod %s has ended %s, last with exit code %d (%s): %s; see kubectl logs -n %s %s --previous",
				pod.Name, conditions.Count(c.RestartCount, "time", "times"), end.ExitCode, end.Reason, lastLine(end.Message), pod.Namespace, pod.Name)}
	}
	return nil
}

func rejected(pod *corev1.Pod) *trouble {
	if pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	return &trouble{v1alpha1.ReasonPodRejected,
		fmt.Sprintf("pod %s ended on node %s (%s): %s", pod.Name, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
