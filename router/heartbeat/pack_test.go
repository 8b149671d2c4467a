package heartbeat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// pack is a table with several workers of one model, all in the ring.
type pack struct {
	*fixture
	workers    []*fakeWorker
	candidates []Candidate
	reports    []*workerv1.Report // what each worker says at the next beat
}

func podOf(i int) string { return fmt.Sprintf("w%d", i) }

func newPack(t *testing.T, n int) *pack {
	t.Helper()
	return newPackBehind(t, testr.New(t), n, func(_ int, address string) string { return address })
}

// newPackBehind is a pack whose workers are reached at other addresses than their own.
func newPackBehind(t *testing.T, log logr.Logger, n int, behind func(i int, address string) string) *pack {
	t.Helper()
	p := &pack{fixture: newFixtureWithLog(t, log)}
	for i := range n {
		w := newFakeWorker(t, good("a"))
		p.workers, p.reports = append(p.workers, w), append(p.reports, good("a"))
		p.candidates = append(p.candidates, Candidate{Pod: podOf(i), PodUID: "pod-1", Address: behind(i, w.address),
			ModelUID: "uid-1", Model: "smollm2"})
	}
	p.SetCandidates(p.candidates)
	for i := range n {
		p.heardAt(t, podOf(i))
	}
	p.beat(t)
	for i := range n {
		p.state(t, podOf(i), Up)
	}
	return p
}

// beat lets a second pass, and then all workers but some report.
func (p *pack) beat(t *testing.T, but ...int) {
	t.Helper()
	p.clock.Step(time.Second)
	p.report(t, but...)
}

func (p *pack) report(t *testing.T, but ...int) {
	t.Helper()
	for i, w := range p.workers {
		if slices.Contains(but, i) {
			continue
		}
		r := proto.Clone(p.reports[i]).(*workerv1.Report)
		w.say(r)
		p.heardAt(t, podOf(i))
	}
}

// member is a worker as the snapshot has it.
func (p *pack) member(t *testing.T, i int) Member {
	t.Helper()
	for _, m := range p.Snapshot().Models["uid-1"] {
		if m.Pod == podOf(i) {
			return m
		}
	}
	t.Fatalf("the snapshot has no %s", podOf(i))
	return Member{}
}

// becomes waits until the snapshot has a worker as cond wants it.
func (p *pack) becomes(t *testing.T, i int, what string, cond func(Member) bool) {
	t.Helper()
	p.until(t, podOf(i), what, func(Worker) bool { return cond(p.member(t, i)) })
}

// ends tells the outcome of n requests.
func (p *pack) ends(i, n int, o Outcome) {
	for range n {
		p.Outcome(podOf(i), "a", o)
	}
}
