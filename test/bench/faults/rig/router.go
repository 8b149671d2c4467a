package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Router is a router in a process of its own.
type Router struct {
	Process
	// Name is its pod's; URL is where clients ask, Ops where probes do.
	Name, URL, Ops string
	// Client asks it, and records.
	Client *client.Client

	spec   routeSpec
	conn   *grpc.ClientConn
	whole  bool // this is its first process
	before quiet
	owners map[string]string // of the rig's own model
}

// plain asks routers for probes and figures.
var plain = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (r *Router) connect(creds credentials.TransportCredentials) (err error) {
	r.conn, err = grpc.NewClient("passthrough:///"+local(r.spec.GRPC), grpc.WithTransportCredentials(creds))
	return err
}

// Ready reports whether it says that it is.
func (r *Router) Ready(ctx context.Context) bool { return get(ctx, r.Ops+"/readyz") == nil }

func get(ctx context.Context, url string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	a, err := plain.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close() //nolint:errcheck // it was read
	if text, _ := io.ReadAll(io.LimitReader(a.Body, 1<<10)); a.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %d: %s", a.StatusCode, bytes.TrimSpace(text))
	}
	return nil
}

// Tell tells it of another state of the cluster, and returns when it has taken it.
func (r *Router) Tell(ctx context.Context, s discovery.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+local(r.spec.Control)+"/state", bytes.NewReader(text))
	if err != nil {
		return err
	}
	a, err := plain.Do(q)
	if err != nil {
		return fmt.Errorf("tell %s of a state: %w", r.Name, err)
	}
	_ = a.Body.Close() // it has none
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("tell %s of a state: it answered %d", r.Name, a.StatusCode)
	}
	r.spec.State = s
	return nil
}

// Status is what it knows.
func (r *Router) Status(ctx context.Context) (*routerv1.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return routerv1.NewRouterClient(r.conn).Status(ctx, &routerv1.StatusRequest{}, grpc.WaitForReady(true))
}

// Worker is what it knows of one worker; nil: nothing.
func (r *Router) Worker(ctx context.Context, pod string) (*routerv1.WorkerStatus, error) {
	s, err := r.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range s.GetModels() {
		for _, w := range m.GetWorkers() {
			if w.GetPodName() == pod {
				return w, nil
			}
		}
	}
	return nil, nil
}

// InRing reports whether a worker is in its ring.
func (r *Router) InRing(ctx context.Context, pod string) (bool, error) {
	w, err := r.Worker(ctx, pod)
	return w.GetInRing(), err
}

// ByKey places requests by their key alone, however many there are.
func ByKey(s *discovery.Settings) {
	s.Policy, s.MaxLoadPercent = string(v1alpha1.PlacementConsistentHash), 100_000
}

// Owners asks it for each of n keys of the rig's model, and returns who answered. What it says last is in the history: it has to be
// asked once its members no longer change, and place by key.
func (r *Router) Owners(ctx context.Context, n int) (map[string]string, error) {
	owner := map[string]string{}
	all := r.Client.Many(ctx, n, 8, func(i int) client.Request {
		return client.Request{Model: ModelName, Words: 1, Session: "key-" + strconv.Itoa(i)}
	})
	for i := range all {
		if all[i].Outcome() != history.Completed {
			return nil, fmt.Errorf("key %d has no answer from %s: %d %s", i, r.Name, all[i].Status, all[i].Code)
		}
		owner["key-"+strconv.Itoa(i)] = all[i].Worker
	}
	r.owners = owner
	return owner, nil
}

// Figures are its metrics, by name.
func (r *Router) Figures(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Ops+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	a, err := plain.Do(q)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", r.Name, err)
	}
	defer a.Body.Close() //nolint:errcheck // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(a.Body)
}

// Heap is a router's heap as its own figures tell it.
type Heap struct {
	// Collections is how often it has been collected; Live is about what the last of them found in use, in bytes, and the stacks.
	Collections uint64
	Live        float64
}

// Heap asks it for its heap.
func (r *Router) Heap(ctx context.Context) (h Heap, err error) {
	f, err := r.Figures(ctx)
	for _, m := range f["go_gc_duration_seconds"].GetMetric() {
		h.Collections = m.GetSummary().GetSampleCount()
	}
	// It is collected when it has grown by that percentage of what is live.
	h.Live = Figure(f, "go_memstats_next_gc_bytes", nil) / (1 + Figure(f, "go_gc_gogc_percent", nil)/100)
	return h, err
}

// Figure adds up the series of a metric that have the labels; 0 where there is none.
func Figure(all map[string]*dto.MetricFamily, name string, labels map[string]string) float64 {
	sum := 0.0
	for _, m := range all[name].GetMetric() {
		fits := true
		for k, v := range labels {
			fits = fits && label(m, k) == v
		}
		if fits {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
