package heartbeat

import (
	"sync"
	"time"

	"github.com/go-logr/logr"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// judge is what the workers of one model are judged by together. Its methods may be called from any goroutine.
type judge struct {
	model string // its UID

	mu        sync.Mutex // guards what follows; taken after every other lock, and held for pure functions only
	ejector   *Ejector
	anomalies *anomalies
}

// findings is what a judge has to tell; most often nothing.
type findings struct {
	ejections []Ejection
	anomalies []Anomaly
}

func (f findings) empty() bool { return len(f.ejections) == 0 && len(f.anomalies) == 0 }

func (f findings) and(g findings) findings {
	return findings{append(f.ejections, g.ejections...), append(f.anomalies, g.anomalies...)}
}

func newJudge(model string, c Config) *judge {
	return &judge{model: model, ejector: NewEjector(c.Stall, c.silence()), anomalies: newAnomalies()}
}

func (j *judge) configure(c Config) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ejector.Configure(c.Stall, c.silence())
}

// look takes what the detector thinks of a worker now, and its report where one has just come.
func (j *judge) look(now time.Time, pod, instance string, up bool, fresh *workerv1.Report) findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.ejector.Stand(pod, instance, up)
	e = append(e, j.ejector.Tick(now, pod)...)
	if load := fresh.GetLoad(); load != nil {
		e = append(e, j.ejector.Progress(now, pod, load.GetRunning(), load.ProgressTokens)...)
	}
	a := j.anomalies.stand(pod, instance)
	return j.named(e, append(a, j.anomalies.tick(now, pod)...))
}

// forget drops a worker that is no candidate any more.
func (j *judge) forget(pod string) findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.named(j.ejector.Forget(pod), j.anomalies.forget(pod))
}

func (j *judge) outcome(now time.Time, pod, instance string, o Outcome) findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.named(j.ejector.Outcome(now, pod, instance, o), nil)
}

func (j *judge) point(now time.Time, pod string, s Signal, x float64) findings {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.named(nil, j.anomalies.point(now, pod, s, x))
}

// verdict is whether a worker is ejected, until when, and the word for its anomaly.
func (j *judge) verdict(pod string) (until time.Time, anomaly string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ejector.Until(pod), j.anomalies.word(pod)
}

// named writes the model into what is told.
func (j *judge) named(e []Ejection, a []Anomaly) findings {
	for i := range e {
		e[i].ModelUID = j.model
	}
	for i := range a {
		a[i].ModelUID = j.model
	}
	return findings{e, a}
}

// news is findings and the name of their model.
type news struct {
	model string
	findings
}

// from adds f to all, unless it is empty. No lock of w may be held.
func (f findings) from(w *watcher, all []news) []news {
	if f.empty() {
		return all
	}
	return append(all, news{w.worker().Model, f})
}

func (t *Table) tellAll(all []news) {
	for _, n := range all {
		t.tell(n.model, n.findings)
	}
}

// tell logs findings and hands them on. No lock may be held; the snapshot has what they say.
func (t *Table) tell(model string, f findings) {
	if f.empty() {
		return
	}
	log := t.options.Log.WithValues("model", model)
	for _, e := range f.ejections {
		logEjection(log, e)
		if t.options.OnEject != nil {
			t.options.OnEject(e)
		}
	}
	for _, a := range f.anomalies {
		logAnomaly(log, a)
		if t.options.OnAnomaly != nil {
			t.options.OnAnomaly(a)
		}
	}
}

func logEjection(log logr.Logger, e Ejection) {
	log = log.WithValues("worker", e.Pod, "instance", e.Instance, "cause", e.Cause, "why", e.Why)
	switch e.Change {
	case Ejected:
		log.Info("a worker is ejected", "for", e.For.String(), "times", e.Times)
	case Returned:
		log.Info("an ejection ends")
	case Spared:
		log.Info("panic: a worker that should be ejected stays, as more than half of its ring would be out")
	}
}

func logAnomaly(log logr.Logger, a Anomaly) {
	log = log.WithValues("worker", a.Pod, "instance", a.Instance, "signal", a.Signal.String(), "against", a.Against.String())
	if a.On {
		log.Info("a worker differs from what is usual", "value", a.Value, "usual", a.Usual, "z", a.Z)
	} else {
		log.Info("a worker is as usual again", "value", a.Value)
	}
}
