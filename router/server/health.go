package server

import (
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringfleet/ringfleet/router/metrics"
)

// ops serves probes and metrics.
type ops struct {
	ready    func() (bool, string)
	fleet    *fleet
	draining atomic.Bool
	mux      *http.ServeMux
}

func newOps(f *fleet, set *metrics.Set) *ops {
	o := &ops{ready: f.ready, fleet: f, mux: http.NewServeMux()}
	o.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	o.mux.HandleFunc("GET /readyz", o.readyz)
	figures := promhttp.HandlerFor(set.Registry, promhttp.HandlerOpts{})
	o.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		f.figures()
		figures.ServeHTTP(w, r)
	})
	o.mux.HandleFunc("GET /decisions", o.decisions)
	return o
}

// decisions tells which worker the last requests went to and why, as JSON; with ?request_id= only of that one.
func (o *ops) decisions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(o.fleet.board.Decisions(r.URL.Query().Get("request_id"))) // who asked may have gone
}

// readyz fails at once when the router drains, and until it can answer.
func (o *ops) readyz(w http.ResponseWriter, _ *http.Request) {
	ok, why := o.ready()
	if o.draining.Load() {
		ok, why = false, "draining"
	}
	if !ok {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
