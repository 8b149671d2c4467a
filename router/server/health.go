package server

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringfleet/ringfleet/router/metrics"
)

// ops serves probes and metrics.
type ops struct {
	ready    func() (bool, string)
	draining atomic.Bool
	mux      *http.ServeMux
}

func newOps(ready func() (bool, string), set *metrics.Set) *ops {
	o := &ops{ready: ready, mux: http.NewServeMux()}
	o.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	o.mux.HandleFunc("GET /readyz", o.readyz)
	o.mux.Handle("GET /metrics", promhttp.HandlerFor(set.Registry, promhttp.HandlerOpts{}))
	return o
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
