package server

import (
	"fmt"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// progress is how far a worker has come on its way to serve, as its reports tell. The zero value has heard nothing. It
// isn't safe for concurrent use.
type progress struct {
	instance string
	stage    workerv1.Stage
	first    point // of the stage
	last     point
}

// point is a percentage at a time.
type point struct {
	at      time.Time
	percent uint32
	known   bool
}

// hear takes a report that came at now.
func (p *progress) hear(r *workerv1.Report, now time.Time) {
	here := point{at: now, percent: r.GetProgressPercent(), known: r.ProgressPercent != nil}
	if r.GetInstanceId() != p.instance || r.GetStage() != p.stage || here.percent < p.last.percent || !p.first.known {
		p.instance, p.stage, p.first = r.GetInstanceId(), r.GetStage(), here
	}
	p.last = here
}

// left is how long the stage takes still, at its speed until now; 0 when that can't be told.
func (p *progress) left(now time.Time) time.Duration {
	done, took := p.last.percent-p.first.percent, p.last.at.Sub(p.first.at)
	if !p.first.known || !p.last.known || p.last.percent <= p.first.percent || took <= 0 || p.last.percent > 100 {
		return 0
	}
	whole := took * time.Duration(100-p.last.percent) / time.Duration(done)
	return max(whole-now.Sub(p.last.at), time.Second)
}

// waits is the line for clients whose requests wait for the model; empty when there is a worker that takes them.
func (w workersState) waits() string {
	if w.sound > 0 {
		return ""
	}
	if w.candidates == 0 {
		return "waiting for a worker"
	}
	s := fmt.Sprintf("waiting for a worker: stage=%s", stageWord(w.stage))
	if w.percent != nil {
		s += fmt.Sprintf(" percent=%d", *w.percent)
	}
	if w.left > 0 {
		s += fmt.Sprintf(" eta=%ds", int((w.left+time.Second-1)/time.Second))
	}
	return s
}

func stageWord(s workerv1.Stage) string {
	switch s {
	case workerv1.Stage_STAGE_FETCHING:
		return "fetching"
	case workerv1.Stage_STAGE_LOADING:
		return "loading"
	case workerv1.Stage_STAGE_LOADED:
		return "loaded"
	case workerv1.Stage_STAGE_DRAINING:
		return "draining"
	case workerv1.Stage_STAGE_FAILED:
		return "failed"
	}
	return "starting"
}
