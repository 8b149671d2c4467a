//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/hack/image/oci"
	"github.com/ringfleet/ringfleet/test/cluster"
)

func TestDeletion(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"in the background": metav1.DeletePropagationBackground,
		"in the foreground": metav1.DeletePropagationForeground,
	} {
		t.Run(name+", a running stream finishes and nothing is left", func(t *testing.T) {
			ns := namespace(t, "e2e-delete-"+strings.ToLower(string(policy)))
			m := model(t, ns, "gone")
			untilReady(t, m)
			url := base(t, ns)
			begun, ended := make(chan struct{}, 4096), make(chan outcome, 1)
			go func() {
				ended <- post(context.Background(), url, long("gone", "s", 100), func(outcome) { begun <- struct{}{} })
			}()
			<-begun
			<-begun
			if err := api.Delete(t.Context(), m, client.PropagationPolicy(policy)); err != nil {
				t.Fatal(err)
			}
			if o := <-ended; !o.good() || !o.done {
				t.Errorf("the stream was cut: %s", o)
			}
			eventually(t, "everything made for the model is gone", func(ctx context.Context) (bool, string, error) {
				left, err := remains(ctx, ns)
				return len(left) == 0, strings.Join(left, ", "), err
			})
		})
	}

	t.Run("as orphans, the pods stay, get no traffic and are not adopted", func(t *testing.T) {
		ns := namespace(t, "e2e-delete-orphan")
		keep := model(t, ns, "keep", replicas(0), func(m *v1alpha1.InferenceModel) {
			zero := int32(0)
			m.Spec.Scaling.MinReplicas = &zero
		})
		m := model(t, ns, "orphan")
		untilReady(t, m)
		url := base(t, ns)
		pod := workers(t, m)[0]
		if err := api.Delete(t.Context(), m, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the name is unknown", func(ctx context.Context) (bool, string, error) {
			o := post(ctx, url, question{model: "orphan", prompt: "Hi", maxTokens: 2}, nil)
			return o.status == http.StatusNotFound, o.String(), nil
		})
		eventually(t, "the first model is gone", func(ctx context.Context) (bool, string, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(m), m)
			return apierrors.IsNotFound(err), "still there", client.IgnoreNotFound(err)
		})
		second := model(t, ns, "orphan")
		untilReady(t, second)
		for range 4 {
			if o := post(t.Context(), url, question{model: "orphan", prompt: "Hi", maxTokens: 2}, nil); !o.good() || o.worker == pod.Name {
				t.Errorf("the orphan's namesake answered with %s", o)
			}
		}
		var still corev1.Pod
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(&pod), &still); err != nil || still.DeletionTimestamp != nil || len(still.OwnerReferences) != 0 {
			t.Errorf("the orphaned pod: %v, owners %v, deleted %v", err, still.OwnerReferences, still.DeletionTimestamp)
		}
		untilCondition(t, keep, v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonScaledToZero)
	})
}

// remains lists what is left of a fleet in a namespace.
func remains(ctx context.Context, ns string) ([]string, error) {
	var left []string
	for _, list := range []client.ObjectList{&v1alpha1.InferenceModelList{}, &v1alpha1.InferenceRouterList{}, &v1alpha1.WorkerPoolList{}, &corev1.PodList{}, &corev1.ServiceList{}} {
		if err := api.List(ctx, list, client.InNamespace(ns)); err != nil {
			return nil, err
		}
		err := eachItem(list, func(o client.Object) { left = append(left, fmt.Sprintf("%T %s", o, o.GetName())) })
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

func TestTwoModelsThatClaimOneName(t *testing.T) {
	ns := namespace(t, "e2e-names")
	zero := func(m *v1alpha1.InferenceModel) {
		n := int32(0)
		m.Spec.Replicas, m.Spec.Scaling.MinReplicas, m.Spec.ModelName = &n, &n, "one-name"
	}
	first, second := model(t, ns, "first", zero), model(t, ns, "second", zero)
	holder, other := first, second
	if earlier(second, first) {
		holder, other = second, first
	}
	untilCondition(t, holder, v1alpha1.NamesAccepted, metav1.ConditionTrue, v1alpha1.ReasonNamesFree)
	if why := untilCondition(t, other, v1alpha1.NamesAccepted, metav1.ConditionFalse, v1alpha1.ReasonNameTaken); !strings.Contains(why, "one-name") || !strings.Contains(why, holder.Name) {
		t.Errorf("the condition names neither the name nor the model: %s", why)
	}
	if err := api.Delete(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	untilCondition(t, other, v1alpha1.NamesAccepted, metav1.ConditionTrue, v1alpha1.ReasonNamesFree)
}

// earlier reports whether a has a name that both claim: the older object, and of two that were made in the same second,
// which is as fine as the API server tells, the one with the smaller UID.
func earlier(a, b *v1alpha1.InferenceModel) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// TestBrokenWeights breaks the weights in every way that a user may, and mends each by a change of the object alone.
func TestBrokenWeights(t *testing.T) {
	good, err := os.ReadFile(weightsFile(t))
	if err != nil {
		t.Fatal(err)
	}
	load(t,
		oci.Image{Name: "docker.io/ringfleet/e2e-truncated:1", Layers: []oci.Layer{{Files: []oci.File{{Path: "/m.gguf", Content: good[:40<<20]}}}}},
		oci.Image{Name: "docker.io/ringfleet/e2e-text:1", Layers: []oci.Layer{{Files: []oci.File{{Path: "/m.gguf", Content: []byte("<html>404 Not Found</html>")}}}}},
		oci.Image{Name: "docker.io/ringfleet/e2e-empty:1", Layers: []oci.Layer{{}}},
	)
	ns := namespace(t, "e2e-weights")
	m := model(t, ns, "broken", func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "oci://docker.io/ringfleet/e2e-text:1" })
	for _, c := range []struct {
		name    string
		weights v1alpha1.Weights
		reason  v1alpha1.Reason
		says    []string
	}{
		{"a file that is not GGUF", v1alpha1.Weights{URI: "oci://docker.io/ringfleet/e2e-text:1"}, v1alpha1.ReasonWeightsNotGGUF, []string{"m.gguf"}},
		{"a truncated file", v1alpha1.Weights{URI: "oci://docker.io/ringfleet/e2e-truncated:1"}, v1alpha1.ReasonWeightsTruncated, []string{"m.gguf", fmt.Sprint(40 << 20), fmt.Sprint(len(good))}},
		{"an artifact that mounts as an empty folder", v1alpha1.Weights{URI: "oci://docker.io/ringfleet/e2e-empty:1"}, v1alpha1.ReasonWeightsNotFound, []string{"empty"}},
		{"a file that the image lacks", v1alpha1.Weights{URI: cluster.Weights, File: "other.gguf"}, v1alpha1.ReasonWeightsNotFound, []string{"other.gguf"}},
		{"an image that nobody has", v1alpha1.Weights{URI: "oci://docker.io/ringfleet/e2e-nowhere:1"}, v1alpha1.ReasonWeightsPullFailed, []string{"e2e-nowhere"}},
		{"an image with another digest", v1alpha1.Weights{URI: cluster.Weights, Digest: "sha256:" + strings.Repeat("0", 64)}, v1alpha1.ReasonWeightsPullFailed, []string{"sha256:000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			change(t, m, func() { m.Spec.Weights = c.weights })
			why := untilCondition(t, m, v1alpha1.WeightsCached, metav1.ConditionFalse, c.reason)
			for _, s := range c.says {
				if !strings.Contains(why, s) {
					t.Errorf("the message lacks %q: %s", s, why)
				}
			}
			untilCondition(t, m, v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonWeightsNotUsable)
			for _, p := range workers(t, m) {
				for _, s := range p.Status.ContainerStatuses {
					if s.RestartCount > 0 {
						t.Errorf("worker %s has restarted %d times", p.Name, s.RestartCount)
					}
				}
			}
		})
	}
	change(t, m, func() { m.Spec.Weights = v1alpha1.Weights{URI: cluster.Weights} })
	untilReady(t, m)
	if o := post(t.Context(), base(t, ns), question{model: "broken", prompt: "Hi", maxTokens: 4}, nil); !o.good() {
		t.Errorf("the mended model does not answer: %s", o)
	}
}

// change updates a model as a user would, once more when somebody else was quicker.
func change(t *testing.T, m *v1alpha1.InferenceModel, f func()) {
	t.Helper()
	for try := 0; ; try++ {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		f()
		err := api.Update(t.Context(), m)
		if err == nil {
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// weightsFile is the demo model's file on this machine.
func weightsFile(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "run", "../../hack/image", "weights").Output()
	if err != nil {
		t.Fatalf("find the demo model's file: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// load puts images onto the nodes.
func load(t *testing.T, images ...oci.Image) {
	t.Helper()
	args := []string{"load"}
	for i, image := range images {
		img, err := oci.Build(image, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.tar", i))
		if _, err := oci.Write(file, image.Name, img); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	if out, err := exec.Command("../../bin/cluster", args...).CombinedOutput(); err != nil {
		t.Fatalf("load images: %v\n%s", err, out)
	}
}
