package chart

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/manager"
	"github.com/ringfleet/ringfleet/hack/image/recipe"
	"github.com/ringfleet/ringfleet/hack/image/repo"
)

func root(t *testing.T) string {
	t.Helper()
	r, err := repo.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	once sync.Once
	tool *Helm
)

func helm(t *testing.T) *Helm {
	t.Helper()
	once.Do(func() {
		h, err := NewHelm(t.Context(), root(t))
		if err != nil {
			t.Fatal(err)
		}
		tool = h
	})
	if tool == nil {
		t.Fatal("there is no helm")
	}
	return tool
}

func render(t *testing.T, args ...string) Objects {
	t.Helper()
	text, err := helm(t).Template(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func kustomized(t *testing.T, folder string) Objects {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root(t), folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	o, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func as[T any](t *testing.T, o Objects, key string) *T {
	t.Helper()
	into := new(T)
	if o[key] == nil {
		t.Fatalf("there is no %s", key)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o[key].Object, into, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return into
}

// installations are the two ways to install, with equal names.
func installations(t *testing.T) map[string]Objects {
	t.Helper()
	return map[string]Objects{"chart": render(t), "kustomize": kustomized(t, "config/default")}
}

func TestTheManagerRunsUnderPodSecurityRestricted(t *testing.T) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, objects, "Deployment ringfleet-manager").Spec.Template
			if r := policy.AggregateCheckResults(checks.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
				t.Errorf("refused: %s", r.ForbiddenDetail())
			}
			if ro := pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
				t.Error("its root file system is writable")
			}
			pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
			if policy.AggregateCheckResults(checks.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)).Allowed {
				t.Error("the check lets privilege escalation pass")
			}
		})
	}
}

func TestTheManagerUnderstandsItsArguments(t *testing.T) {
	version, err := repo.Version(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) {
			c := as[appsv1.Deployment](t, objects, "Deployment ringfleet-manager").Spec.Template.Spec.Containers[0]
			var o manager.Options
			set := flag.NewFlagSet("manager", flag.ContinueOnError)
			o.Bind(set)
			if err := set.Parse(c.Args); err != nil {
				t.Fatal(err)
			}
			o.Namespace = "ringfleet-system" // comes from POD_NAMESPACE
			if err := o.Validate(); err != nil {
				t.Error(err)
			}
			for program, image := range map[string]string{
				"manager": c.Image, "worker": o.WorkerImage, "worker-cuda": o.WorkerCUDAImage, "router": o.RouterImage,
			} {
				if want := recipe.Name(program, version); image != want {
					t.Errorf("the image of %s is %s; hack/image makes %s", program, image, want)
				}
			}
			if len(c.Env) != 1 || c.Env[0].Name != "POD_NAMESPACE" || c.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.namespace" {
				t.Errorf("environment %+v", c.Env)
			}
			if objects["ClusterRole "+o.RouterClusterRole] == nil {
				t.Errorf("there is no ClusterRole %s for routers", o.RouterClusterRole)
			}
		})
	}
}

func TestTheManagerMayDoWhatItsMarkersSayAndBindOneRoleOnly(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	generated, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want := as[rbacv1.ClusterRole](t, generated, "ClusterRole ringfleet-manager").Rules
	wantHome := as[rbacv1.Role](t, generated, "Role ringfleet-manager").Rules
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) {
			home := as[rbacv1.Role](t, objects, "Role ringfleet-manager")
			if a, b := mustJSON(t, home.Rules), mustJSON(t, wantHome); a != b || home.Namespace != "ringfleet-system" {
				t.Errorf("rules in namespace %s\n%s\nexpected\n%s\nrun make manifests", home.Namespace, a, b)
			}
			got := as[rbacv1.ClusterRole](t, objects, "ClusterRole ringfleet-manager").Rules
			if a, b := mustJSON(t, got), mustJSON(t, want); a != b {
				t.Errorf("rules\n%s\nexpected\n%s\nrun make manifests", a, b)
			}
			bound := 0
			for _, r := range got {
				if slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") || slices.Contains(r.Verbs, "escalate") || slices.Contains(r.Verbs, "impersonate") {
					t.Errorf("a rule gives too much: %+v", r)
				}
				if slices.Contains(r.Verbs, "bind") {
					bound++
					if !slices.Equal(r.ResourceNames, []string{"ringfleet-router"}) {
						t.Errorf("it may bind %q", r.ResourceNames)
					}
				}
			}
			if bound != 1 {
				t.Errorf("%d rules with bind, expected 1", bound)
			}
		})
	}
}

func TestWhoMayEditAKindMayScaleItAndWhoMayViewItMaySeeTheScale(t *testing.T) {
	allows := func(rules []rbacv1.PolicyRule, resource, verb string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	for name, objects := range installations(t) {
		for role, edits := range map[string]bool{"admin": true, "edit": true, "view": false} {
			rules := as[rbacv1.ClusterRole](t, objects, "ClusterRole ringfleet-"+role).Rules
			for _, scaled := range []string{"inferencemodels/scale", "inferencerouters/scale"} {
				if !allows(rules, scaled, "get") || allows(rules, scaled, "patch") != edits || allows(rules, scaled, "update") != edits {
					t.Errorf("%s: %s of %s is not as it should be in %s", name, role, scaled, mustJSON(t, rules))
				}
			}
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBothWaysInstallTheSame(t *testing.T) {
	both := installations(t)
	for key := range both["chart"] {
		if both["kustomize"][key] == nil {
			t.Errorf("the kustomize tree lacks %s", key)
		}
	}
	for key := range both["kustomize"] {
		if both["chart"][key] == nil && key != "Namespace ringfleet-system" {
			t.Errorf("the chart lacks %s", key)
		}
	}
	pods := map[string]string{}
	for name, objects := range both {
		pod := as[appsv1.Deployment](t, objects, "Deployment ringfleet-manager").Spec.Template
		delete(pod.Labels, "app.kubernetes.io/instance") // of a release
		pods[name] = mustJSON(t, pod)
	}
	if pods["chart"] != pods["kustomize"] {
		t.Errorf("the chart's pod\n%s\nthe kustomize tree's\n%s", pods["chart"], pods["kustomize"])
	}
}

func TestSamplesAreOfOurKindsWithoutAnUnknownField(t *testing.T) {
	seen := map[string]bool{}
	for key, o := range kustomized(t, "config/samples") {
		kind, _, _ := strings.Cut(key, " ")
		seen[kind] = true
		into := map[string]any{"InferenceModel": &v1alpha1.InferenceModel{}, "WorkerPool": &v1alpha1.WorkerPool{}, "InferenceRouter": &v1alpha1.InferenceRouter{}}[kind]
		if into == nil {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(mustJSON(t, o.Object)), into); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, kind := range []string{"InferenceModel", "WorkerPool", "InferenceRouter"} {
		if !seen[kind] {
			t.Errorf("there is no sample of %s", kind)
		}
	}
	sample := as[v1alpha1.InferenceModel](t, kustomized(t, "config/samples"), "InferenceModel smollm2")
	if sample.Spec.Weights.URI != "oci://"+recipe.ModelName {
		t.Errorf("the sample's weights are %s, and the image built is %s", sample.Spec.Weights.URI, recipe.ModelName)
	}
}
