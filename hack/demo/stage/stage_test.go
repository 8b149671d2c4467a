package stage

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func model(generation int64, ready metav1.Condition, workers ...v1alpha1.WorkerProgress) *v1alpha1.InferenceModel {
	ready.Type = string(v1alpha1.Ready)
	m := &v1alpha1.InferenceModel{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
	m.Status.Conditions = []metav1.Condition{ready}
	m.Status.InRing = "0/2"
	m.Status.Workers = workers
	return m
}

func TestProgressIsWhatAUserWantsToKnow(t *testing.T) {
	percent := int32(40)
	for name, c := range map[string]struct {
		model *v1alpha1.InferenceModel
		ready bool
		want  string
	}{
		"before the manager has seen the model": {&v1alpha1.InferenceModel{}, false, "      the manager has not seen the model yet"},
		"a status of an older spec does not count": {model(2, metav1.Condition{Status: "True", Reason: "Serving", ObservedGeneration: 1}), false,
			"      the manager has not seen the model yet"},
		"workers on their way are listed": {model(1, metav1.Condition{Status: "False", Reason: "WorkersStarting", Message: "0 of 2 workers", ObservedGeneration: 1},
			v1alpha1.WorkerProgress{Name: "w-0", Node: "n1", Stage: "Loading", Percent: &percent}, v1alpha1.WorkerProgress{Name: "w-1", Stage: "Pending", Message: "no room"}), false,
			"      Ready=False WorkersStarting, in the ring: 0/2: 0 of 2 workers\n        w-0 on n1: Loading 40 %\n        w-1 on -: Pending, no room"},
		"a model that serves is ready": {model(1, metav1.Condition{Status: "True", Reason: "Serving", ObservedGeneration: 1}), true,
			"      Ready=True Serving, in the ring: 0/2"},
	} {
		t.Run(name, func(t *testing.T) {
			if ready, got := Progress(c.model); ready != c.ready || got != c.want {
				t.Errorf("%v, got\n%s\nexpected\n%s", ready, got, c.want)
			}
		})
	}
}

func TestOnlyPodsOfAnotherImageAreReplaced(t *testing.T) {
	const m, r, w = "docker.io/ringfleet/manager:1", "docker.io/ringfleet/router:1", "docker.io/ringfleet/worker:1"
	for name, c := range map[string]struct {
		before, now map[string]string
		want        []string
	}{
		"the first run replaces none":  {nil, map[string]string{m: "a"}, nil},
		"the same images replace none": {map[string]string{m: "a", r: "b"}, map[string]string{m: "a", r: "b"}, nil},
		"new images replace their own": {map[string]string{m: "a", r: "b", w: "c"}, map[string]string{m: "x", r: "b", w: "y"}, []string{"manager", "worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changed(c.before, c.now); !slices.Equal(got, c.want) {
				t.Errorf("%q, expected %q", got, c.want)
			}
		})
	}
}

func TestNextNamesWhatIsReal(t *testing.T) {
	got := Next("/r/bin/", "/k/config", "http://10.96.0.7/v1", "org/m", "")
	for _, want := range []string{"export KUBECONFIG=/k/config PATH=/r/bin:$PATH\n", "curl -N http://10.96.0.7/v1/chat/completions",
		`"model":"org/m"`, `base_url="http://10.96.0.7/v1"`, "kubectl ringfleet chat smollm2", "make demo-down"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "port-forward") {
		t.Errorf("a port-forward that is not needed in\n%s", got)
	}
	if forwarded := Next("/b", "/k", "http://127.0.0.1:1/v1", "m", "kubectl port-forward x"); !strings.Contains(forwarded, "kubectl port-forward x &\n  curl") {
		t.Errorf("no port-forward before curl in\n%s", forwarded)
	}
}

func TestLinesAreIndentedWholeAndTheLastIsNotLost(t *testing.T) {
	var out bytes.Buffer
	w := &indented{out: &out}
	for _, part := range []string{"on", "e\ntwo\nth", "ree"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	w.end()
	if out.String() != "      one\n      two\n      three\n" {
		t.Errorf("got %q", out.String())
	}
}

// program puts an executable script into the bin folder of d's repository.
func program(t *testing.T, d *Demo, name, script string) {
	t.Helper()
	if err := os.MkdirAll(d.bin(""), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.bin(""), name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramGetsTheRunsSettingsAndItsFailureIsNamed(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this machine has no shell")
	}
	var out bytes.Buffer
	d := &Demo{Root: t.TempDir(), Out: &out, Clock: clock.RealClock{}, HTTP: http.DefaultClient, env: []string{"CLUSTER_NAME=of-a-test"}}
	program(t, d, "cluster", "echo cluster $1 of $CLUSTER_NAME\n")
	if err := d.run(t.Context(), &out, d.bin("cluster"), "up"); err != nil {
		t.Fatal(err)
	}
	program(t, d, "broken", "echo reason >&2; exit 3\n")
	_, err := d.output(t.Context(), d.bin("broken"), "argument")
	if err == nil || !strings.Contains(err.Error(), "broken argument: exit status 3: reason") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "      cluster up of of-a-test\n") {
		t.Errorf("the program's environment or lines are lost: %q", out.String())
	}
}

func TestAProgramIsToldToEndWhenTheUserHasHadEnough(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this machine has no shell")
	}
	d := &Demo{Root: t.TempDir(), Clock: clock.RealClock{}}
	told := filepath.Join(d.Root, "told")
	program(t, d, "slow", "trap 'touch "+told+"; exit 0' TERM\ntouch "+told+".ready\nwhile :; do :; done\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := d.output(ctx, d.bin("slow")); ended <- err }()
	for begin := time.Now(); ; {
		if _, err := os.Stat(told + ".ready"); err == nil {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("the program does not start")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the program does not end")
	}
	if _, err := os.Stat(told); err != nil {
		t.Errorf("the program was not told: %v", err)
	}
}
