package inferencemodel

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// fleet is a model's workers in a transcript. Its commands:
//
//	want replicas=2 surge=1 unavailable=0 revision=a   what to reach; what is not named stays
//	ready|fail|kill|gone NAME…                         enters the ring; ends; leaves the ring; is finally deleted
//	load NAME=N…                                       runs N requests
//	tick DURATION                                      time goes by
//	plan                                               decides and does it
//	settle                                             new workers become ready and deleted ones go, plan after plan
type fleet struct {
	t       *testing.T
	now     time.Time
	want    wanted
	workers map[string]*worker
	b       backoff
}

func TestPlansOfTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/plan_*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			fl := &fleet{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), workers: map[string]*worker{}}
			playTranscript(t, f, fl.do)
		})
	}
}

func (f *fleet) do(words []string) []string {
	args := words[1:]
	switch words[0] {
	case "want":
		for _, a := range args {
			f.set(a)
		}
	case "ready", "fail", "kill", "gone":
		for _, name := range args {
			f.change(words[0], name)
		}
	case "load":
		for _, a := range args {
			name, n, _ := strings.Cut(a, "=")
			f.worker(name).inFlight = f.number(n)
		}
	case "tick":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			f.t.Fatal(err)
		}
		f.now = f.now.Add(d)
	case "plan":
		return f.plan()
	case "settle":
		return f.settle()
	default:
		f.t.Fatalf("unknown command %q", words[0])
	}
	return nil
}

func (f *fleet) set(setting string) {
	key, value, _ := strings.Cut(setting, "=")
	switch key {
	case "replicas":
		f.want.replicas = f.number(value)
	case "surge":
		f.want.surge = f.number(value)
	case "unavailable":
		f.want.unavailable = f.number(value)
	case "revision":
		f.want.revision = value
	default:
		f.t.Fatalf("unknown setting %q", setting)
	}
}

func (f *fleet) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fleet) worker(name string) *worker {
	w := f.workers[name]
	if w == nil {
		f.t.Fatalf("no worker %q", name)
	}
	return w
}

func (f *fleet) change(what, name string) {
	w := f.worker(name)
	switch what {
	case "ready":
		w.available = true
	case "kill":
		w.available, w.lost = false, f.now
	case "fail":
		w.available, w.ended = false, true
	case "gone":
		delete(f.workers, name)
	}
}

func (f *fleet) plan() []string {
	list := make([]worker, 0, len(f.workers))
	for _, name := range slices.Sorted(maps.Keys(f.workers)) {
		list = append(list, *f.workers[name])
	}
	p := decide(f.want, list, nil, f.b, f.now)
	f.b = p.backoff
	var said []string
	for _, d := range p.remove {
		said = append(said, fmt.Sprintf("delete %s: %s", d.w.name, d.why))
		if w := f.worker(d.w.name); w.ended {
			delete(f.workers, d.w.name)
		} else {
			w.terminating, w.available = true, false
		}
	}
	for _, o := range p.create {
		name := fmt.Sprintf("%s-%d", f.want.revision, o)
		if f.workers[name] != nil {
			f.t.Fatalf("the plan creates %s, which exists", name)
		}
		f.workers[name] = &worker{pod: &corev1.Pod{}, name: name, revision: f.want.revision, created: f.now}
		said = append(said, "create "+name)
	}
	if !p.retry.IsZero() {
		said = append(said, fmt.Sprintf("retry in %s", p.retry.Sub(f.now)))
	}
	if len(said) == 0 {
		said = []string{"nothing"}
	}
	return said
}

func (f *fleet) settle() []string {
	var said []string
	for round := 1; round < 50; round++ {
		now := f.plan()
		if len(now) == 1 && now[0] == "nothing" {
			return append(said, "settled")
		}
		said = append(said, fmt.Sprintf("%d. %s", round, strings.Join(now, ", ")))
		for name, w := range f.workers {
			w.available = !w.terminating
			if w.terminating {
				delete(f.workers, name)
			}
		}
		f.least(&said)
		f.now = f.now.Add(time.Second)
	}
	return append(said, "NEVER settles")
}

// least notes when fewer workers than promised are available.
func (f *fleet) least(said *[]string) {
	n := 0
	for _, w := range f.workers {
		if w.available {
			n++
		}
	}
	if cmp.Less(n, f.want.replicas-f.want.unavailable) {
		*said = append(*said, fmt.Sprintf("only %d available", n))
	}
}
