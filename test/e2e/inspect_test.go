//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// everythingWritten returns the text of all that our processes and controllers have written down, by where it stands.
func everythingWritten(t *testing.T, ns string) map[string]string {
	t.Helper()
	written := map[string]string{}
	for _, in := range []string{ns, "ringfleet-system"} {
		var pods corev1.PodList
		if err := api.List(t.Context(), &pods, client.InNamespace(in)); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			written["the log of "+p.Name] = logs(t, in, p.Name)
			written["pod "+p.Name] = fmt.Sprint(p)
		}
		var events corev1.EventList
		if err := api.List(t.Context(), &events, client.InNamespace(in)); err != nil {
			t.Fatal(err)
		}
		written["the events of "+in] = fmt.Sprint(events.Items)
	}
	var models v1alpha1.InferenceModelList
	var routers v1alpha1.InferenceRouterList
	if err := api.List(t.Context(), &models, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if err := api.List(t.Context(), &routers, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	written["the models"], written["the routers"] = fmt.Sprint(models.Items), fmt.Sprint(routers.Items)
	return written
}

// quiet watches everything of a namespace for ten seconds and expects no change.
func quiet(t *testing.T, ns string) {
	ten := int64(10)
	for _, list := range []client.ObjectList{
		&v1alpha1.InferenceModelList{}, &v1alpha1.InferenceRouterList{}, &v1alpha1.WorkerPoolList{},
		&corev1.PodList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &discoveryv1.EndpointSliceList{},
	} {
		t.Run(fmt.Sprintf("%T", list), func(t *testing.T) {
			t.Parallel()
			if err := api.List(t.Context(), list, client.InNamespace(ns)); err != nil {
				t.Fatal(err)
			}
			w, err := api.Watch(t.Context(), list, client.InNamespace(ns), &client.ListOptions{
				Namespace: ns, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &ten},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for e := range w.ResultChan() { // ends with the server's timeout
				text, _ := json.Marshal(e.Object)
				t.Errorf("%s %s", e.Type, text)
			}
		})
	}
}

// bounded holds a model to what is true of it at any moment, also in the middle of a fault: its workers are as many as it may
// have, its status speaks of no generation that is still to come, and it is not Ready with fewer workers than it must have.
func bounded(t *testing.T, m *v1alpha1.InferenceModel) {
	t.Helper()
	var now v1alpha1.InferenceModel
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), &now); err != nil {
		t.Fatal(err)
	}
	s := now.Status
	least, most := *now.Spec.Scaling.MinReplicas, *now.Spec.Scaling.MaxReplicas
	if n := *now.Spec.Replicas; n < least || n > most {
		t.Errorf("spec.replicas of %s is %d, not from %d to %d", now.Name, n, least, most)
	}
	if s.ObservedGeneration > now.Generation {
		t.Errorf("the status of %s speaks of generation %d, and there are %d", now.Name, s.ObservedGeneration, now.Generation)
	}
	for _, c := range s.Conditions {
		if c.ObservedGeneration > now.Generation {
			t.Errorf("%s of %s speaks of generation %d, and there are %d", c.Type, now.Name, c.ObservedGeneration, now.Generation)
		}
		ready := c.Type == string(v1alpha1.Ready) && c.Status == metav1.ConditionTrue && c.ObservedGeneration == now.Generation
		if ready && (s.InRingReplicas == nil || *s.InRingReplicas < least) {
			t.Errorf("%s is Ready, and fewer than its %d workers are in the ring: %+v", now.Name, least, s)
		}
	}
}

// mistaken calls a worker as a router would, but expects another instance, another revision, or is somebody else.
func mistaken(t *testing.T, m *v1alpha1.InferenceModel) {
	p := workers(t, m)[0]
	address := fmt.Sprintf("%s:%d", p.Status.PodIP, v1alpha1.PortGRPCNumber)
	ask := &workerv1.GenerateRequest{Prompt: &workerv1.GenerateRequest_Text{Text: &workerv1.TextPrompt{Text: "Hi"}}, MaxTokens: 2}
	asRouter := credentialsOf(t, m.Namespace, v1alpha1.SecretRouterTLS)
	before := calls(t, m)
	for name, c := range map[string]struct {
		creds  credentials.TransportCredentials
		change func(*workerv1.GenerateRequest)
		want   codes.Code
	}{
		"another instance":       {asRouter, func(q *workerv1.GenerateRequest) { q.ExpectedInstanceId = "0123" }, codes.FailedPrecondition},
		"another revision":       {asRouter, func(q *workerv1.GenerateRequest) { q.ExpectedRevision = "0123" }, codes.FailedPrecondition},
		"another model":          {asRouter, func(q *workerv1.GenerateRequest) { q.ExpectedModelUid = "0123" }, codes.FailedPrecondition},
		"a worker's certificate": {credentialsOf(t, m.Namespace, v1alpha1.SecretWorkerTLS), func(*workerv1.GenerateRequest) {}, codes.Unavailable},
		"no certificate":         {credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), func(*workerv1.GenerateRequest) {}, codes.Unavailable},
		"no TLS":                 {insecure.NewCredentials(), func(*workerv1.GenerateRequest) {}, codes.Unavailable},
		"a router that is right": {asRouter, func(q *workerv1.GenerateRequest) { q.ExpectedModelUid = string(m.UID) }, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			q := &workerv1.GenerateRequest{Prompt: ask.Prompt, MaxTokens: ask.MaxTokens, RequestId: "e2e-mistaken"}
			c.change(q)
			if got := generate(t, address, c.creds, q); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	text := logs(t, m.Namespace, p.Name)
	if after := calls(t, m); after-before != 4 { // three refusals and one answer; the rest never got in
		t.Errorf("the worker records %d more calls, want 4", after-before)
	}
	if n := strings.Count(text, `"request":"e2e-mistaken","attempt":"","instance"`); n != 4 {
		t.Errorf("the worker's record names the calls %d times, want 4", n)
	}
	if n := strings.Count(text, `"code":"FailedPrecondition"`); n < 3 {
		t.Errorf("the worker's record has %d refusals, want 3", n)
	}
}

func generate(t *testing.T, address string, creds credentials.TransportCredentials, q *workerv1.GenerateRequest) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	stream, err := workerv1.NewWorkerClient(conn).Generate(ctx, q)
	for err == nil {
		var r *workerv1.GenerateResponse
		if r, err = stream.Recv(); r.GetFinish() != nil {
			return codes.OK
		}
	}
	return status.Code(err)
}

// credentialsOf speaks with the certificate of a Secret.
func credentialsOf(t *testing.T, ns, secret string) credentials.TransportCredentials {
	t.Helper()
	creds, end, err := rig.Credentials(t.Context(), ns, secret, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return creds
}
