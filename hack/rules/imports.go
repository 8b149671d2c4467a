package rules

import (
	"fmt"
	"path"
	"strings"
)

// Ban says what the packages below a folder must not import. Except names folders below it for which it doesn't hold.
type Ban struct {
	Below  string
	Of     []string
	Except []string
}

// Bans are the halves of the product: they meet only in api, and the data plane does not link Kubernetes.
var Bans = []Ban{
	{Below: "api", Of: []string{Module + "/controllers", Module + "/router", Module + "/worker", Module + "/cli", Module + "/hack"}},
	{Below: "controllers", Of: []string{Module + "/router", Module + "/worker", Module + "/cli", Module + "/hack"}},
	{Below: "controllers/workerpool", Of: []string{Module + "/controllers/inferencemodel", Module + "/controllers/inferencerouter"}},
	{Below: "router", Of: []string{Module + "/controllers", Module + "/worker", Module + "/cli", Module + "/hack"}},
	{Below: "router", Of: []string{"k8s.io/client-go", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/", Module + "/api/v1alpha1"},
		Except: []string{"router/discovery"}},
	{Below: "worker", Of: []string{Module + "/controllers", Module + "/router", Module + "/cli", Module + "/hack",
		"k8s.io/api", "k8s.io/client-go", "k8s.io/apimachinery", "sigs.k8s.io/", Module + "/api/v1alpha1"}},
	{Below: "cli", Of: []string{Module + "/controllers", Module + "/router", Module + "/worker", Module + "/hack"}},
	{Below: "", Of: []string{Module + "/test"}, Except: []string{"test"}},
}

// Only says that a package may import nothing of the module but what is listed.
type Only struct {
	Dir string
	May []string
}

// Pure packages decide: they see observed data and a time, and do no I/O.
var Pure = []Only{
	{"router/ring", nil},
	{"router/openai", nil},
	{"router/prefix", nil},
	{"router/placement", []string{"router/ring", "router/prefix"}},
	{"router/admission", nil},
	{"router/queue", []string{"router/admission"}},
	{"router/lines", nil},
	{"api/modelfile", nil},
	{"api/memoryplan", []string{"api/modelfile"}},
	{"worker/engine", nil},
	{"worker/kvcache", nil},
	{"worker/sampling", []string{"worker/engine"}},
	{"worker/grammar", []string{"worker/engine"}},
	{"worker/dialect", []string{"worker/engine"}},
	{"worker/weights", []string{"worker/engine", "api/modelfile"}},
	{"worker/weights/egress", nil},
	{"worker/weights/cache", nil},
	{"worker/weights/source", []string{"worker/weights/egress"}},
	{"worker/weights/fetch", []string{"worker/engine", "api/modelfile", "worker/weights", "worker/weights/egress", "worker/weights/source", "worker/weights/cache"}},
	{"worker/engine/llamacpp", []string{"worker/engine", "worker/weights", "worker/dialect", "api/modelfile"}},
	{"worker/engine/openai", []string{"worker/engine"}},
	{"worker/engine/sim", []string{"worker/engine"}},
	{"worker/scheduler", []string{"worker/engine", "worker/kvcache", "worker/sampling"}},
	{"controllers/conditions", []string{"api/v1alpha1"}},
	{"controllers/names", []string{"api/v1alpha1"}},
	{"controllers/inferencemodel/desired", []string{"api/v1alpha1", "api/identity", "api/engineargs", "controllers/names"}},
	{"controllers/inferencerouter/desired", []string{"api/v1alpha1", "api/identity", "controllers/names"}},
}

// NoClock are the packages that are told the time: as an argument, or by a clock that they are given.
var NoClock = []string{
	"api/identity",
	"router/ring", "router/placement", "router/openai", "router/heartbeat", "router/upstream", "router/gateway",
	"router/discovery", "router/metrics", "router/server", "router/prefix", "router/admission", "router/queue", "router/tracing",
	"router/lines",
	"api/modelfile", "api/memoryplan",
	"worker/sampling", "worker/weights", "worker/scheduler", "worker/engine", "worker/engine/llamacpp", "worker/engine/sim",
	"worker/weights/egress", "worker/weights/cache", "worker/weights/source", "worker/weights/fetch",
	"worker/kvcache", "worker/grammar", "worker/dialect", "worker/engine/openai",
	"worker/grpcserver", "worker/gpu", "worker/metrics", "worker/agent",
	"controllers/conditions", "controllers/names", "controllers/step", "controllers/metrics", "controllers/manager",
	"controllers/inferencemodel", "controllers/inferencemodel/desired", "controllers/inferencerouter",
	"controllers/inferencerouter/desired", "controllers/workerpool", "controllers/fleetclient", "controllers/pki",
	"controllers/autoscaler",
	"cli/command",
}

// Imports says which imports break Bans or Pure. Tests may import anything but other halves of the product.
func Imports(files []File) []string {
	var bad []string
	for _, f := range files {
		for _, imported := range f.imports() {
			for _, b := range Bans {
				if b.forbids(f, imported) {
					bad = append(bad, fmt.Sprintf("%s imports %s: %s may not", f.Path, imported, orModule(b.Below)))
				}
			}
			if !f.Test && !allowed(f.Dir(), imported) {
				bad = append(bad, fmt.Sprintf("%s imports %s: see Pure in hack/rules", f.Path, imported))
			}
		}
	}
	return bad
}

func orModule(folder string) string {
	if folder == "" {
		return "nothing outside test"
	}
	return folder
}

func (b Ban) forbids(f File, imported string) bool {
	if !below(f.Dir(), b.Below) {
		return false
	}
	for _, e := range b.Except {
		if below(f.Dir(), e) {
			return false
		}
	}
	for _, o := range b.Of {
		if strings.HasSuffix(o, "/") && strings.HasPrefix(imported, o) || below(imported, strings.TrimSuffix(o, "/")) {
			return true
		}
	}
	return false
}

func below(p, folder string) bool {
	return folder == "" || p == folder || strings.HasPrefix(p, folder+"/")
}

func allowed(dir, imported string) bool {
	for _, o := range Pure {
		if o.Dir != dir {
			continue
		}
		rest, ours := strings.CutPrefix(imported, Module+"/")
		if !ours {
			return true
		}
		for _, may := range o.May {
			if below(rest, may) {
				return true
			}
		}
		return path.Clean(rest) == dir
	}
	return true
}
