package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// other is another value for every value of the chart, as helm's --set-json takes it, and what must then
// stand in the rendered text ("!" in front: what must not).
var other = map[string][2]string{
	"nameOverride":                      {`"fleet"`, "app.kubernetes.io/name: fleet"},
	"fullnameOverride":                  {`"mine"`, "name: mine-manager"},
	"crds.enabled":                      {`false`, "!kind: CustomResourceDefinition"},
	"crds.keep":                         {`false`, "!helm.sh/resource-policy: keep"},
	"imagePullPolicy":                   {`"Always"`, "--image-pull-policy=Always"},
	"imagePullSecrets":                  {`[{"name":"creds"}]`, "- name: creds"},
	"manager.image.repository":          {`"mirror.example/manager"`, "image: mirror.example/manager:"},
	"manager.image.tag":                 {`"v9"`, "docker.io/ringfleet/manager:v9"},
	"manager.replicas":                  {`3`, "replicas: 3"},
	"manager.logLevel":                  {`"debug"`, "--zap-log-level=debug"},
	"manager.resources.requests.cpu":    {`"7m"`, "cpu: 7m"},
	"manager.resources.requests.memory": {`"97Mi"`, "memory: 97Mi"},
	"manager.resources.limits.memory":   {`"513Mi"`, "memory: 513Mi"},
	"manager.nodeSelector":              {`{"disk":"fast"}`, "disk: fast"},
	"manager.tolerations":               {`[{"key":"spot","operator":"Exists"}]`, "key: spot"},
	"manager.affinity":                  {`{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}`, "nodeAffinity:"},
	"manager.podAnnotations":            {`{"team":"ml"}`, "team: ml"},
	"manager.podLabels":                 {`{"cost":"ml"}`, "cost: ml"},
	"manager.priorityClassName":         {`"system-cluster-critical"`, "priorityClassName: system-cluster-critical"},
	"serviceAccount.name":               {`"sa"`, "serviceAccountName: sa"},
	"serviceAccount.annotations":        {`{"role":"r"}`, "role: r"},
	"router.image.repository":           {`"mirror.example/router"`, "--router-image=mirror.example/router:"},
	"router.image.tag":                  {`"v9"`, "--router-image=docker.io/ringfleet/router:v9"},
	"worker.image.repository":           {`"mirror.example/worker"`, "--worker-image=mirror.example/worker:"},
	"worker.image.tag":                  {`"v9"`, "--worker-image=docker.io/ringfleet/worker:v9"},
	"worker.cudaImage.repository":       {`"mirror.example/worker-cuda"`, "--worker-cuda-image=mirror.example/worker-cuda:"},
	"worker.cudaImage.tag":              {`"v9"`, "--worker-cuda-image=docker.io/ringfleet/worker-cuda:v9"},
	"rbac.aggregate":                    {`false`, "!aggregate-to-"},
	"metrics.enabled":                   {`false`, "--metrics-bind-address=0"},
	"metrics.secure":                    {`false`, "--metrics-secure=false"},
	"metrics.port":                      {`9000`, "--metrics-bind-address=:9000"},
	"metrics.service.annotations":       {`{"scrape":"yes"}`, "scrape: \"yes\""},
	"metrics.serviceMonitor.enabled":    {`true`, "kind: ServiceMonitor"},
	"metrics.serviceMonitor.labels":     {`{"release":"prom"}`, "release: prom"},
	"metrics.serviceMonitor.interval":   {`"7s"`, "interval: 7s"},
}

// leaves are the paths of v's values. An empty map or list is a value.
func leaves(prefix string, v any) []string {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return []string{prefix}
	}
	var out []string
	for k, child := range m {
		out = append(out, leaves(strings.TrimPrefix(prefix+"."+k, "."), child)...)
	}
	return out
}

func TestEveryValueDoesSomething(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "charts", "ringfleet", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	have := leaves("", values)
	for path := range other {
		if !slices.Contains(have, path) {
			t.Errorf("%s is tried and does not stand in values.yaml", path)
		}
	}
	h := helm(t)
	for _, path := range have {
		try, ok := other[path]
		if !ok {
			t.Errorf("nobody tries %s", path)
			continue
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			args := []string{"--set-json", path + "=" + try[0]}
			if strings.HasPrefix(path, "metrics.serviceMonitor.") {
				args = append(args, "--set", "metrics.serviceMonitor.enabled=true")
			}
			got, err := h.Template(t.Context(), args...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(got); err != nil {
				t.Error(err)
			}
			unwanted, not := strings.CutPrefix(try[1], "!")
			if strings.Contains(got, unwanted) == not {
				t.Errorf("%s: expected %q in the manifests", args, try[1])
			}
		})
	}
}

func TestAValueThatCannotBeIsRefused(t *testing.T) {
	h := helm(t)
	for name, c := range map[string]struct{ set, want string }{
		"an unknown key":                 {`crd={"enabled":true}`, "crd"},
		"an unknown key below":           {`manager.image={"name":"x"}`, "name"},
		"an unknown resource list":       {`manager.resources.limit={"cpu":"1"}`, "limit"},
		"a string for a number":          {`manager.replicas="two"`, "replicas"},
		"a tag with a colon":             {`worker.image.tag="a:b"`, "tag"},
		"a repository with a digest":     {`worker.cudaImage.repository="a@sha256"`, "repository"},
		"a pull policy that is not one":  {`imagePullPolicy="Sometimes"`, "imagePullPolicy"},
		"a port below 1024":              {`metrics.port=443`, "port"},
		"a log level that is not one":    {`manager.logLevel="loud"`, "logLevel"},
		"a name with capital letters":    {`fullnameOverride="Mine"`, "fullnameOverride"},
		"a quantity that is not one":     {`manager.resources.limits.memory="lots"`, "memory"},
		"a toleration of unknown effect": {`manager.tolerations=[{"effect":"Never"}]`, "effect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := h.Template(t.Context(), "--set-json", c.set); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "schema") {
				t.Errorf("error %v, expected one of the schema that names %s", err, c.want)
			}
		})
	}
}

func TestEveryObjectOfTheSchemaIsClosedAndEveryValueIsExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "charts", "ringfleet", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		properties, _ := s["properties"].(map[string]any)
		if len(properties) > 0 && s["additionalProperties"] != false {
			t.Errorf("%s takes unknown keys", path)
		}
		for k, v := range properties {
			child := v.(map[string]any)
			if child["properties"] == nil && child["description"] == nil && !strings.Contains(path, "[]") && !strings.HasSuffix(path, ".affinity") {
				t.Errorf("%s.%s is not explained", path, k)
			}
			walk(path+"."+k, child)
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
	}
	walk("", schema)
}

func TestTheChartPassesHelmLint(t *testing.T) {
	if out, err := helm(t).Run(t.Context(), "lint", "--strict", filepath.Join("charts", "ringfleet")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnOldClusterIsRefused(t *testing.T) {
	if _, err := helm(t).Template(t.Context(), "--kube-version", "1.34.0"); err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("error %v, expected one that names kubeVersion", err)
	}
	if _, err := helm(t).Template(t.Context(), "--kube-version", "1.35.0-gke.1"); err != nil {
		t.Error(err)
	}
}
