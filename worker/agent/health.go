package agent

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
)

// health is the answer of /health. Absent figures are unknown.
type health struct {
	ModelLoaded   bool    `json:"model_loaded"`
	Model         string  `json:"model"`
	ModelUID      string  `json:"model_uid"`
	Revision      string  `json:"revision"`
	InstanceID    string  `json:"instance_id"`
	Stage         string  `json:"stage"`
	Progress      *uint32 `json:"progress,omitempty"` // per cent of the stage
	Reason        string  `json:"reason,omitempty"`
	Message       string  `json:"message,omitempty"`
	Draining      bool    `json:"draining"`
	Queue         queue   `json:"queue"`
	KV            *kv     `json:"kv,omitempty"`
	UptimeSeconds float64 `json:"uptime_seconds"`
}

type queue struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

type kv struct {
	BlocksTotal *int64 `json:"blocks_total,omitempty"`
	Used        *int64 `json:"used,omitempty"`
	Cached      *int64 `json:"cached,omitempty"`
}

// stages are the words that people read.
var stages = map[workerv1.Stage]string{
	workerv1.Stage_STAGE_FETCHING: "Fetching",
	workerv1.Stage_STAGE_LOADING:  "Loading",
	workerv1.Stage_STAGE_LOADED:   "Loaded",
	workerv1.Stage_STAGE_FAILED:   "Failed",
	workerv1.Stage_STAGE_DRAINING: "Draining",
}

func describe(id grpcserver.Identity, now grpcserver.Status, up time.Duration) health {
	h := health{
		ModelLoaded: now.Engine != nil, Model: id.Model, ModelUID: id.ModelUID, Revision: id.Revision, InstanceID: id.Instance,
		Stage: stages[now.Stage], Progress: now.Percent, Reason: now.Reason, Message: now.Message, Draining: now.Draining,
		UptimeSeconds: float64(up.Milliseconds()) / 1000,
	}
	if now.Draining {
		h.Stage, h.Progress = stages[workerv1.Stage_STAGE_DRAINING], nil
	}
	if now.Engine != nil {
		s := now.Engine.Stats()
		h.Queue = queue{Running: s.Running, Waiting: s.Waiting}
		h.KV = &kv{BlocksTotal: s.KVBlocksTotal, Used: s.KVBlocksUsed, Cached: s.KVBlocksCached}
	}
	return h
}

// handler serves probes, people and Prometheus. /health is 200 whatever it says; the probes' answers are their codes.
func (a *agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		now, _ := a.state.Status()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(describe(a.state.Identity(), now, a.clock.Since(a.started))) // the reader may be gone
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		now, _ := a.state.Status()
		if now.Engine != nil {
			if err := now.Engine.Health(r.Context()); err != nil && !now.Draining {
				reply(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		reply(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		now, _ := a.state.Status()
		switch {
		case now.Draining:
			reply(w, http.StatusServiceUnavailable, "draining")
		case now.Engine == nil:
			reply(w, http.StatusServiceUnavailable, "model not loaded: "+stages[now.Stage]+" "+now.Reason)
		default:
			reply(w, http.StatusOK, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.set.Gatherer(), promhttp.HandlerOpts{}))
	return mux
}

func reply(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // the reader may be gone
}
