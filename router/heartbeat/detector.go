package heartbeat

import (
	"fmt"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// Config says when a worker counts as lost and when as back.
type Config struct {
	// Interval between two reports, and the time in which at most one success and one failure count.
	Interval time.Duration
	// Timeout is how late a report may be.
	Timeout time.Duration
	// FailuresToDrop and SuccessesToAdmit are how many in a row change the verdict; both at least 1.
	FailuresToDrop   int
	SuccessesToAdmit int
	// Stall is how long a worker may say that requests run there while it computes no token: the idle timeout of streams,
	// after which these are given up anyway; at least MinStall.
	Stall time.Duration
}

// DefaultConfig is what routers use when nothing else is asked for: lost at most 3.5 s after the last report, back at
// most 2.5 s after a worker answers again.
func DefaultConfig() Config {
	return Config{Interval: time.Second, Timeout: 500 * time.Millisecond, FailuresToDrop: 3, SuccessesToAdmit: 2, Stall: MinStall}
}

// sane replaces what can't be by the least that can.
func (c Config) sane() Config {
	if c.Interval <= 0 {
		c.Interval = DefaultConfig().Interval
	}
	c.Timeout, c.Stall = max(c.Timeout, 0), max(c.Stall, MinStall)
	c.FailuresToDrop, c.SuccessesToAdmit = max(c.FailuresToDrop, 1), max(c.SuccessesToAdmit, 1)
	return c
}

// successGap is how far apart two counted successes must be: an interval, less a tenth of it so that a report which
// comes a little early still counts.
func (c Config) successGap() time.Duration { return c.Interval - c.Interval/10 }

// silence is how long after its last report a worker has failed for the first time.
func (c Config) silence() time.Duration { return c.Interval + c.Timeout }

// State is the verdict on a worker.
type State int

const (
	// Down is not admitted. Too few good reports so far, or its last report says that it can't serve this model.
	Down State = iota
	// Up is in the ring.
	Up
	// Draining takes no new requests; running ones finish.
	Draining
	// Lost has had too many failures in a row. Nothing that runs there can be expected to end.
	Lost
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Up:
		return "Up"
	case Draining:
		return "Draining"
	case Lost:
		return "Lost"
	}
	return "Down"
}

// Expect is who a worker must be. A model is its object's UID: the name that clients ask for may change, and workers that
// were made before report the old one until they are replaced.
type Expect struct {
	ModelUID string // UID of the InferenceModel
	PodUID   string // not checked when empty
}

// Detector is the judge of one worker: a state machine of the times at which it heard something. It isn't safe for
// concurrent use. Times may not go backwards.
type Detector struct {
	config Config
	expect Expect

	instance    string
	draining    bool // said by the worker
	terminating bool // said by the API server
	up          bool
	successes   int // in a row
	failures    int // in a row
	why         string
	broke       string // why the last stream ended; empty after a report

	heard       time.Time // last report, or the start
	lastSuccess time.Time // last one counted; zero when there is none
	lastFailure time.Time
}

// NewDetector returns a detector that has heard nothing; silence counts from now on.
func NewDetector(c Config, e Expect, now time.Time) *Detector {
	return &Detector{config: c.sane(), expect: e, heard: now}
}

// Configure changes the numbers; what was counted stays.
func (d *Detector) Configure(c Config) {
	d.config = c.sane()
	if d.failures >= d.config.FailuresToDrop {
		d.drop()
	}
}

// Report takes a report that arrived at now. A new instance id voids everything known of the old instance. A report of
// a worker that drains, or that can't serve the expected model, takes it out at once.
func (d *Detector) Report(now time.Time, r *workerv1.Report) {
	if id := r.GetInstanceId(); id != d.instance {
		d.instance = id
		d.drop()
		d.failures, d.lastSuccess, d.lastFailure = 0, time.Time{}, time.Time{}
	}
	d.heard, d.broke = now, ""
	d.draining = r.GetDraining()
	if why := unfit(d.expect, r); why != "" {
		d.drop()
		d.failures, d.why = 0, why
		return
	}
	if !d.lastSuccess.IsZero() && now.Sub(d.lastSuccess) < d.config.successGap() {
		return
	}
	d.lastSuccess, d.failures, d.why = now, 0, ""
	d.successes = min(d.successes+1, d.config.SuccessesToAdmit)
	d.up = d.up || d.successes == d.config.SuccessesToAdmit
}

// Broken takes a stream that ended or a connection that was refused at now.
func (d *Detector) Broken(now time.Time, why string) {
	d.broke = why
	d.fail(now, why)
}

// Tick looks for silence; calls before Next change nothing. However late it comes, it counts one failure: a router that
// was itself stopped for a while gives its workers time to be heard.
func (d *Detector) Tick(now time.Time) {
	if now.Before(d.Next()) {
		return
	}
	why := fmt.Sprintf("no report for %s", now.Sub(d.heard).Round(time.Millisecond))
	if d.broke != "" {
		why += ": " + d.broke
	}
	d.fail(now, why)
}

// Terminate takes the API server's word that the pod goes; there is no way back.
func (d *Detector) Terminate() { d.terminating = true }

// Next is when silence is the next failure.
func (d *Detector) Next() time.Time {
	silent := d.heard.Add(d.config.silence())
	if again := d.lastFailure.Add(d.config.Interval); !d.lastFailure.IsZero() && again.After(silent) {
		return again
	}
	return silent
}

// State is the verdict.
func (d *Detector) State() State {
	switch {
	case d.failures >= d.config.FailuresToDrop:
		return Lost
	case d.terminating, d.draining:
		return Draining
	case d.up:
		return Up
	}
	return Down
}

// Instance is the instance id of the last report; empty before the first.
func (d *Detector) Instance() string { return d.instance }

// Why says what is wrong with the last heartbeat; empty after a good one, and while none was due.
func (d *Detector) Why() string { return d.why }

func (d *Detector) fail(now time.Time, why string) {
	d.why = why
	if !d.lastFailure.IsZero() && now.Sub(d.lastFailure) < d.config.Interval {
		return
	}
	d.lastFailure, d.successes = now, 0
	if d.failures++; d.failures >= d.config.FailuresToDrop {
		d.failures = d.config.FailuresToDrop
		d.drop()
	}
}

func (d *Detector) drop() { d.up, d.successes = false, 0 }

// stranger says why r is not a report of the expected worker, or returns "".
func stranger(e Expect, r *workerv1.Report) string {
	switch {
	case r.GetInstanceId() == "":
		return "the report has no instance id"
	case r.GetModelUid() != e.ModelUID:
		return fmt.Sprintf("serves the model with UID %q, expected %q", r.GetModelUid(), e.ModelUID)
	case e.PodUID != "" && r.GetPodUid() != "" && r.GetPodUid() != e.PodUID:
		return fmt.Sprintf("is the pod with UID %q, expected %q", r.GetPodUid(), e.PodUID)
	}
	return ""
}

// unfit says why r is no success, or returns "".
func unfit(e Expect, r *workerv1.Report) string {
	if why := stranger(e, r); why != "" {
		return why
	}
	switch {
	case r.GetDraining():
		return "drains"
	case !r.GetModelLoaded() && r.GetStage() == workerv1.Stage_STAGE_FAILED:
		return fmt.Sprintf("can't load its model: %s: %s", r.GetReason(), r.GetMessage())
	case !r.GetModelLoaded():
		return "has not loaded its model"
	}
	return ""
}
