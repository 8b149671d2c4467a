package step_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ringfleet/ringfleet/controllers/step"
)

func TestRunStopsAtTheFirstErrorAndNamesItsStep(t *testing.T) {
	var did []string
	do := func(name string, err error) step.Step[*[]string] {
		return step.Step[*[]string]{Name: name, Do: func(_ context.Context, s *[]string) error {
			*s = append(*s, name)
			return err
		}}
	}
	broken := errors.New("no room")
	err := step.Run(context.Background(), &did, do("look", nil), do("act", broken), do("rest", nil))
	if !errors.Is(err, broken) || err.Error() != "act: no room" {
		t.Errorf("got %v, want the step's error behind its name", err)
	}
	if got := strings.Join(did, " "); got != "look act" {
		t.Errorf("did %q, want nothing after the error", got)
	}
}

func TestOutcomeTellsConflictsFromErrors(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "x", errors.New("newer"))
	if r, err := step.Outcome(time.Minute, conflict); err != nil || r.RequeueAfter == 0 || r.RequeueAfter == time.Minute {
		t.Errorf("conflict gave %v, %v; want a short wait and no error", r, err)
	}
	if r, err := step.Outcome(time.Minute, nil); err != nil || r.RequeueAfter != time.Minute {
		t.Errorf("success gave %v, %v; want the wait that was asked for", r, err)
	}
	if _, err := step.Outcome(time.Minute, errors.New("other")); err == nil {
		t.Error("an error was swallowed")
	}
}

func service(port int32) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service("s", "n").WithLabels(map[string]string{"a": "b"}).WithSpec(corev1ac.ServiceSpec().
		WithClusterIP("None").WithSelector(map[string]string{"u": "1"}).
		WithPorts(corev1ac.ServicePort().WithName("http").WithPort(port).WithProtocol(corev1.ProtocolTCP).
			WithTargetPort(intstr.FromString("http"))))
}

func TestApplyWritesOnlyADifference(t *testing.T) {
	ctx := context.Background()
	c := fake.NewClientBuilder().WithReturnManagedFields().Build()
	apply := func(port int32) bool {
		t.Helper()
		wrote, err := step.Apply(ctx, c, &corev1.Service{}, service(port), corev1ac.ExtractService)
		if err != nil {
			t.Fatal(err)
		}
		return wrote
	}
	if !apply(80) || apply(80) {
		t.Fatal("want one write for the first apply and none for the second")
	}
	var live corev1.Service
	key := client.ObjectKey{Namespace: "n", Name: "s"}
	if err := c.Get(ctx, key, &live); err != nil {
		t.Fatal(err)
	}
	live.Labels["theirs"] = "x"
	if err := c.Update(ctx, &live, client.FieldOwner("someone")); err != nil {
		t.Fatal(err)
	}
	if apply(80) {
		t.Error("another owner's label made Apply write")
	}
	live.Spec.Selector["u"] = "2"
	if err := c.Update(ctx, &live, client.FieldOwner("someone")); err != nil {
		t.Fatal(err)
	}
	if !apply(80) {
		t.Error("a field that was changed by someone else was left as it was")
	}
	if !apply(90) {
		t.Error("another port was not written")
	}
	if err := c.Get(ctx, key, &live); err != nil {
		t.Fatal(err)
	}
	if live.Labels["theirs"] != "x" || live.Spec.Selector["u"] != "1" || len(live.Spec.Ports) != 1 || live.Spec.Ports[0].Port != 90 {
		t.Errorf("got labels %v and %+v, want the other owner's label kept and our fields as applied", live.Labels, live.Spec)
	}
}

func TestWriteStatusWritesOnlyADifferenceAndMeetsConflicts(t *testing.T) {
	ctx := context.Background()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "n", "p"
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if wrote, err := step.WriteStatus(ctx, c, pod, pod.DeepCopy()); wrote || err != nil {
		t.Errorf("an equal status gave %v, %v; want no write", wrote, err)
	}
	after := pod.DeepCopy()
	after.Status.Message = "x"
	if wrote, err := step.WriteStatus(ctx, c, pod, after); !wrote || err != nil {
		t.Errorf("another status gave %v, %v; want a write", wrote, err)
	}
	late := pod.DeepCopy()
	late.Status.Message = "y"
	if _, err := step.WriteStatus(ctx, c, pod, late); !apierrors.IsConflict(err) {
		t.Errorf("a write from an old version gave %v, want a conflict", err)
	}
}
