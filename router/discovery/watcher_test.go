package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is how long a test waits for what must come; it only ends tests that would never end.
const hang = 60 * time.Second

// apiServer serves list and watch of a few objects as the Kubernetes API does.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]metav1.Object // by resource and name
	watchers map[chan event]string               // and the resource
	down     bool
	asked    []string
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

var kinds = map[string][2]string{
	"inferencemodels":  {"inference.ringfleet.dev/v1alpha1", "InferenceModel"},
	"inferencerouters": {"inference.ringfleet.dev/v1alpha1", "InferenceRouter"},
	"endpointslices":   {"discovery.k8s.io/v1", "EndpointSlice"},
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{version: 1, objects: map[string]map[string]metav1.Object{}, watchers: map[chan event]string{}}
	for r := range kinds {
		a.objects[r] = map[string]metav1.Object{}
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	resource := parts[len(parts)-1]
	q := r.URL.Query()
	a.mu.Lock()
	a.asked = append(a.asked, r.URL.Path+"?labelSelector="+q.Get("labelSelector")+"&fieldSelector="+q.Get("fieldSelector"))
	if a.down {
		a.mu.Unlock()
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "" {
		a.list(w, resource)
		a.mu.Unlock()
		return
	}
	c := make(chan event, 100)
	a.watchers[c] = resource
	if q.Get("sendInitialEvents") == "true" {
		for _, o := range a.objects[resource] {
			c <- event{"ADDED", o}
		}
		c <- event{"BOOKMARK", map[string]any{"apiVersion": kinds[resource][0], "kind": kinds[resource][1], "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(a.version), "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
		}}}
	}
	a.mu.Unlock()
	defer func() { a.mu.Lock(); delete(a.watchers, c); a.mu.Unlock() }()
	w.WriteHeader(http.StatusOK)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case e := <-c:
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
		}
	}
}

func (a *apiServer) list(w http.ResponseWriter, resource string) {
	items := []any{}
	for _, o := range a.objects[resource] {
		items = append(items, o)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": kinds[resource][0], "kind": kinds[resource][1] + "List",
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

// put creates or replaces an object.
func (a *apiServer) put(resource string, o metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what := "MODIFIED"
	if a.objects[resource][o.GetName()] == nil {
		what = "ADDED"
	}
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[resource][o.GetName()] = o
	a.tell(resource, event{what, o})
}

func (a *apiServer) remove(resource, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o := a.objects[resource][name]
	delete(a.objects[resource], name)
	a.tell(resource, event{"DELETED", o})
}

func (a *apiServer) tell(resource string, e event) {
	for c, r := range a.watchers {
		if r == resource {
			c <- e
		}
	}
}

// away breaks every connection, and refuses to serve until it is back.
func (a *apiServer) away(down bool) {
	a.mu.Lock()
	a.down = down
	a.mu.Unlock()
	if down {
		a.CloseClientConnections()
	}
}

// watch runs a watcher on a and returns the channel of its states.
func watch(t *testing.T, a *apiServer) <-chan State {
	t.Helper()
	w, err := newWatcher(&rest.Config{Host: a.URL}, Options{Namespace: "ns", Router: "default", Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	states := make(chan State, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx, func(s State) { states <- s }); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returns %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return states
}

// until waits for a state that fulfils cond.
func until(t *testing.T, states <-chan State, what string, cond func(State) bool) State {
	t.Helper()
	deadline := time.After(hang)
	for {
		select {
		case s := <-states:
			if cond(s) {
				return s
			}
		case <-deadline:
			t.Fatalf("no state came that %s", what)
		}
	}
}

func TestTheFirstStateIsCompleteAndChangesFollow(t *testing.T) {
	a := newAPIServer(t)
	o := base()
	a.put("inferencemodels", o.models[0])
	a.put("endpointslices", o.endpoints[0])
	states := watch(t, a)
	if first := <-states; !sameState(first, baseState()) {
		t.Fatalf("the first state is %+v", first)
	}
	a.mu.Lock()
	asked := strings.Join(a.asked, "\n")
	a.mu.Unlock()
	for _, want := range []string{
		"/apis/inference.ringfleet.dev/v1alpha1/namespaces/ns/inferencemodels?labelSelector=&fieldSelector=",
		"/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices?labelSelector=inference.ringfleet.dev/model-uid&fieldSelector=",
		"/apis/inference.ringfleet.dev/v1alpha1/namespaces/ns/inferencerouters?labelSelector=&fieldSelector=metadata.name=default",
	} {
		if !strings.Contains(asked, want) {
			t.Errorf("the watcher never asked for %s, but for\n%s", want, asked)
		}
	}
	s := slice("s1", "uid-1", endpoint("w-0", "p-0", "10.0.0.2"))
	a.put("endpointslices", s)
	until(t, states, "has one candidate", func(s State) bool { return len(s.Models[0].Candidates) == 1 })
	r := &v1alpha1.InferenceRouter{TypeMeta: metav1.TypeMeta{APIVersion: kinds["inferencerouters"][0], Kind: "InferenceRouter"}}
	r.Name, r.Namespace, r.Spec.Ring.VirtualNodes = "default", "ns", 40
	a.put("inferencerouters", r)
	until(t, states, "has 40 virtual nodes", func(s State) bool { return s.Settings.VirtualNodes == 40 })
	a.remove("inferencerouters", "default")
	until(t, states, "has the defaults", func(s State) bool { return reflect.DeepEqual(s.Settings, DefaultSettings()) })
	a.remove("inferencemodels", "smollm2")
	until(t, states, "has no model", func(s State) bool { return len(s.Models) == 0 })
}

func TestNothingIsDeliveredBeforeEveryKindIsKnown(t *testing.T) {
	a := newAPIServer(t)
	a.away(true)
	states := watch(t, a)
	deadline := time.Now().Add(hang)
	for asked := 0; asked < 6; <-time.After(time.Millisecond) { // each kind was refused at least once
		a.mu.Lock()
		asked = len(a.asked)
		a.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the watcher doesn't try again")
		}
	}
	select {
	case s := <-states:
		t.Fatalf("got %+v", s)
	default:
	}
	a.away(false)
	if s := <-states; !s.Synced || len(s.Models) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestWhatIsKnownStaysInForceWhileTheAPIServerIsAwayAndIsCaughtUpAfterwards(t *testing.T) {
	a := newAPIServer(t)
	o := base()
	a.put("inferencemodels", o.models[0])
	a.put("endpointslices", o.endpoints[0])
	states := watch(t, a)
	<-states
	a.mu.Lock()
	before := len(a.asked)
	a.mu.Unlock()
	a.away(true)
	deadline := time.Now().Add(hang)
	for asked := 0; asked < before+3; <-time.After(time.Millisecond) {
		a.mu.Lock()
		asked = len(a.asked)
		a.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the watcher doesn't try again")
		}
	}
	m := base().models[0]
	m.Spec.Aliases, m.Status.ServedNames = []string{"renamed"}, []string{"renamed"}
	a.put("inferencemodels", m)
	select {
	case s := <-states:
		t.Fatalf("the outage became the state %+v", s)
	default:
	}
	a.away(false)
	s := until(t, states, "has the new name", func(s State) bool { return s.Models[0].ServedNames[0] == "renamed" })
	if len(s.Models[0].Candidates) != 2 {
		t.Errorf("got %+v", s)
	}
}

func TestAStateThatEqualsTheLastIsNotDelivered(t *testing.T) {
	a := newAPIServer(t)
	o := base()
	a.put("inferencemodels", o.models[0])
	a.put("endpointslices", o.endpoints[0])
	states := watch(t, a)
	<-states
	same := base().models[0]
	same.Labels = map[string]string{"team": "a"}
	a.put("inferencemodels", same)
	other := base().models[0]
	other.Spec.Aliases, other.Status.ServedNames = []string{"last"}, []string{"last"}
	a.put("inferencemodels", other)
	if s := <-states; s.Models[0].ServedNames[0] != "last" {
		t.Errorf("got %+v", s)
	}
}

func TestAKubeconfigThatIsNotThereIsNamed(t *testing.T) {
	_, err := New(Options{Kubeconfig: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v", err)
	}
}

func TestAKubeconfigSaysWhereTheAPIServerIs(t *testing.T) {
	a := newAPIServer(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}], "users": [{"name": "u", "user": {}}],
		"clusters": [{"name": "k", "cluster": {"server": "` + a.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := New(Options{Kubeconfig: file, Namespace: "ns", Router: "default", Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = w.Run(ctx, func(s State) {
		if !s.Synced {
			t.Errorf("got %+v", s)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v", err)
	}
}
