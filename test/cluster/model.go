package cluster

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Weights is the demo model's image.
const Weights = "oci://docker.io/ringfleet/smollm2-135m-instruct:q4_1"

// SystemNamespace is where the manager runs.
const SystemNamespace = "ringfleet-system"

// Namespace makes a namespace that enforces Pod Security restricted.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := c.API.Create(ctx, ns); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// Remove deletes a namespace with everything in it and waits until it is gone. Its pods get no time to drain: streams
// that nobody reads must not hold them. They go before the namespace does, for its controller looks at pods that are
// still there only once more in half of their grace, which is minutes.
func (c *Cluster) Remove(ctx context.Context, namespace string) error {
	in := client.InNamespace(namespace)
	for _, o := range []client.Object{&v1alpha1.InferenceModel{}, &v1alpha1.InferenceRouter{}} {
		if err := c.API.DeleteAllOf(ctx, o, in); err != nil {
			return fmt.Errorf("delete every %T of namespace %s: %w", o, namespace, err)
		}
	}
	_, emptied := Until(ctx, "namespace "+namespace+" has no pods", func(ctx context.Context) (bool, string, error) {
		if err := c.API.DeleteAllOf(ctx, &corev1.Pod{}, in, client.GracePeriodSeconds(0)); err != nil {
			return false, "", err
		}
		var pods corev1.PodList
		var deployments appsv1.DeploymentList
		err := errors.Join(c.API.List(ctx, &pods, in), c.API.List(ctx, &deployments, in))
		return len(pods.Items)+len(deployments.Items) == 0, fmt.Sprintf("%d pods, %d Deployments", len(pods.Items), len(deployments.Items)), err
	})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.API.Delete(ctx, ns); err != nil {
		return errors.Join(emptied, fmt.Errorf("delete namespace %s: %w", namespace, err))
	}
	_, err := Until(ctx, "namespace "+namespace+" is gone", func(ctx context.Context) (bool, string, error) {
		err := c.API.Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{})
		return apierrors.IsNotFound(err), "still there", client.IgnoreNotFound(err)
	})
	return errors.Join(emptied, err)
}

// Model returns an InferenceModel of the demo's weights with one replica, and changes.
func Model(namespace, name string, changes ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	m := &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.InferenceModelSpec{
			Replicas: ptr.To[int32](1), Weights: v1alpha1.Weights{URI: Weights}, DrainTimeoutSeconds: ptr.To[int64](60),
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

// Condition returns a condition of m as the manager has seen it, nil while it has not, and as a line for people.
func Condition(m *v1alpha1.InferenceModel, t v1alpha1.ConditionType) (*metav1.Condition, string) {
	c := meta.FindStatusCondition(m.Status.Conditions, string(t))
	if c == nil || c.ObservedGeneration != m.Generation {
		return nil, "not judged yet"
	}
	return c, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// UntilCondition waits for a condition of a model with a reason, and returns its message. It reads m anew.
func (c *Cluster) UntilCondition(ctx context.Context, m *v1alpha1.InferenceModel, t v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.Reason) (string, error) {
	message := ""
	_, err := Until(ctx, fmt.Sprintf("%s of model %s is %s with reason %s", t, m.Name, status, reason), func(ctx context.Context) (bool, string, error) {
		if err := c.API.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, "", err
		}
		found, saw := Condition(m, t)
		if found != nil {
			message = found.Message
		}
		return found != nil && found.Status == status && found.Reason == string(reason), saw, nil
	})
	return message, err
}

// UntilReady waits until a model serves.
func (c *Cluster) UntilReady(ctx context.Context, m *v1alpha1.InferenceModel) error {
	_, err := c.UntilCondition(ctx, m, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonServing)
	return err
}

// Workers returns the pods of a model that are not being deleted.
func (c *Cluster) Workers(ctx context.Context, m *v1alpha1.InferenceModel) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.API.List(ctx, &pods, client.InNamespace(m.Namespace), client.MatchingLabels{v1alpha1.LabelModelUID: string(m.UID)}); err != nil {
		return nil, fmt.Errorf("list the workers of model %s: %w", m.Name, err)
	}
	var live []corev1.Pod
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			live = append(live, p)
		}
	}
	return live, nil
}

// InRing says whether every Ready router has a worker in its ring.
func InRing(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.GateInRing {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// URL returns the base URL of a namespace's routers, up to and with /v1, once one is Ready.
func (c *Cluster) URL(ctx context.Context, namespace string) (string, error) {
	url := ""
	_, err := Until(ctx, "router "+v1alpha1.DefaultName+" of "+namespace+" is Ready", func(ctx context.Context) (bool, string, error) {
		var r v1alpha1.InferenceRouter
		if err := c.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.DefaultName}, &r); err != nil {
			return false, "no InferenceRouter", client.IgnoreNotFound(err)
		}
		url = fmt.Sprintf("http://%s:%d/v1", r.Status.ClusterIP, r.Spec.Service.Port)
		return r.Status.ClusterIP != "" && meta.IsStatusConditionTrue(r.Status.Conditions, string(v1alpha1.Ready)), fmt.Sprint(r.Status), nil
	})
	return url, err
}
