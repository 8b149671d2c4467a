package desired

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var settings = Settings{Image: "docker.io/ringfleet/router:1", PullPolicy: corev1.PullIfNotPresent, ClusterRole: "ringfleet-router"}

func router(change func(*v1alpha1.InferenceRouter)) *v1alpha1.InferenceRouter {
	r := &v1alpha1.InferenceRouter{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "team-a", UID: "u-1"}}
	change(r)
	return r
}

// all is every child of r in one file.
func all(t *testing.T, r *v1alpha1.InferenceRouter) []byte {
	t.Helper()
	var out bytes.Buffer
	children := []any{ServiceAccount(r), RoleBinding(r, settings), Service(r), Deployment(r, settings)}
	if b := DisruptionBudget(r); b != nil {
		children = append(children, b)
	}
	for _, child := range children {
		text, err := yaml.Marshal(child)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}

func TestChildrenAreThoseOfTheGoldenFile(t *testing.T) {
	for name, r := range map[string]*v1alpha1.InferenceRouter{
		"defaults": router(func(*v1alpha1.InferenceRouter) {}),
		"everything": router(func(r *v1alpha1.InferenceRouter) {
			r.Name = "front.2"
			r.Spec = v1alpha1.InferenceRouterSpec{
				Replicas: new(int32(1)), Image: "registry.example/router:2", DrainTimeoutSeconds: new(int64(20)),
				TLS: &v1alpha1.RouterTLS{SecretName: "front-cert"}, Tracing: &v1alpha1.Tracing{Endpoint: "http://collector:4317"},
				Service: v1alpha1.RouterService{Type: corev1.ServiceTypeLoadBalancer, Port: 8000, Annotations: map[string]string{"lb": "internal"}},
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".yaml")
			got := all(t, r)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("differs from %s; look at it with -update and git diff:\n%s", file, got)
			}
		})
	}
}

func TestWhatRoutersReadLiveRestartsNobody(t *testing.T) {
	plain := all(t, router(func(*v1alpha1.InferenceRouter) {}))
	for name, change := range map[string]func(*v1alpha1.InferenceRouterSpec){
		"heartbeat": func(s *v1alpha1.InferenceRouterSpec) { s.Heartbeat.IntervalMilliseconds = 250 },
		"ring":      func(s *v1alpha1.InferenceRouterSpec) { s.Ring.VirtualNodes = 10 },
		"timeouts":  func(s *v1alpha1.InferenceRouterSpec) { s.Timeouts.FirstByteSeconds = 9 },
	} {
		if !bytes.Equal(plain, all(t, router(func(r *v1alpha1.InferenceRouter) { change(&r.Spec) }))) {
			t.Errorf("a change of %s changes a child", name)
		}
	}
}

func TestNamesAreServiceNamesAndNeverMeet(t *testing.T) {
	long := strings.Repeat("a", 253)
	seen := map[string]string{}
	for _, name := range []string{"default", "a.b", "a-b", "1a", "r1a", "a", long, long[:252] + "b", long[:56], long[:57], strings.Repeat("a", 46) + "-.b"} {
		r := router(func(r *v1alpha1.InferenceRouter) { r.Name = name })
		child := Name(r)
		if wrong := validation.IsDNS1035Label(child); wrong != nil {
			t.Errorf("%s becomes %s: %v", name, child, wrong)
		}
		if wrong := validation.IsValidLabelValue(Selector(r)[v1alpha1.LabelRouter]); wrong != nil {
			t.Errorf("%s as a label: %v", name, wrong)
		}
		if other, ok := seen[child]; ok {
			t.Errorf("%s and %s are both called %s", name, other, child)
		}
		seen[child] = name
	}
	if got := Name(router(func(*v1alpha1.InferenceRouter) {})); got != "default-router" {
		t.Errorf("the default router's children are called %s", got)
	}
}

func TestTheURLNamesThePortOnlyWhenItIsNot80(t *testing.T) {
	for port, want := range map[int32]string{
		0: "http://default-router.team-a.svc/v1", 80: "http://default-router.team-a.svc/v1", 8000: "http://default-router.team-a.svc:8000/v1",
	} {
		if got := URL(router(func(r *v1alpha1.InferenceRouter) { r.Spec.Service.Port = port })); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
}
