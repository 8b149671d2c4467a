package member

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// supervised runs components in the test's own process, until the returned function is called.
func supervised(t *testing.T, components ...config.Component) (dir string, stop func() error) {
	t.Helper()
	dir = t.TempDir()
	for _, d := range []string{importedDir, "images"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := newSupervisor(Spec{Name: "test", Components: components}, 4711)
	s.host, s.logs, s.images = dir, dir, filepath.Join(dir, "images")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	return dir, func() error { cancel(); return <-done }
}

// until polls the status until it holds, or hangs.
func until(t *testing.T, dir string, holds func(Status) bool) Status {
	t.Helper()
	var last Status
	err := await(context.Background(), time.Minute, "status", func() (bool, error) {
		var err error
		last, err = ReadStatus(dir)
		return err == nil && len(last.Components) > 0 && holds(last), err
	})
	if err != nil {
		t.Fatalf("%v; last %+v", err, last)
	}
	return last
}

func shell(name, script string) config.Component {
	return config.Component{Name: name, Command: []string{"sh", "-c", script}}
}

func TestAComponentThatEndsIsStartedAgainAndCounted(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir, stop := supervised(t, shell("fails", "echo attempt; exit 3"), shell("stays", "exec sleep 1000"))
	st := until(t, dir, func(st Status) bool { return st.Components[0].Exits >= 2 && st.Components[1].PID != 0 })
	if st.Phase != Running || st.PID != 4711 || st.Components[0].LastExit != "exit status 3" || st.Components[1].Exits != 0 {
		t.Errorf("got %+v", st)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "fails.log"))
	if err != nil || strings.Count(string(text), "attempt\n") < 2 {
		t.Errorf("log: %q, %v", text, err)
	}
}

func TestTheNextComponentStartsWhenTheOneBeforeIsReady(t *testing.T) {
	defer goleak.VerifyNone(t)
	flag := filepath.Join(t.TempDir(), "ready")
	first := shell("first", "exec sleep 1000")
	first.Ready = []string{"test", "-e", flag}
	dir, stop := supervised(t, first, shell("second", "exec sleep 1000"))
	st := until(t, dir, func(st Status) bool { return st.Components[0].PID != 0 })
	if st.Phase != Starting || st.Waiting != "first" || st.Components[1].PID != 0 {
		t.Errorf("before: %+v", st)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, dir, func(st Status) bool { return st.Phase == Running && st.Waiting == "" && st.Components[1].PID != 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAComponentThatCannotStartSaysWhy(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir, stop := supervised(t, config.Component{Name: "none", Command: []string{"no-such-program"}})
	st := until(t, dir, func(st Status) bool { return st.Components[0].Exits > 0 })
	if !strings.Contains(st.Components[0].LastExit, "no-such-program") {
		t.Errorf("got %+v", st)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestEveryEndOfManyShortProcessesIsCounted(t *testing.T) {
	defer goleak.VerifyNone(t)
	var many []config.Component
	for i := range 8 {
		many = append(many, shell(fmt.Sprint("short", i), "exit 0"))
	}
	dir, stop := supervised(t, many...)
	until(t, dir, func(st Status) bool {
		for _, c := range st.Components {
			if c.Exits == 0 || c.LastExit != "exit status 0" {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAnArchiveThatCannotBeImportedEndsTheStart(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "images", "00000-x.tar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := shell("runtime", "exec sleep 1000")
	c.Images = true
	s := newSupervisor(Spec{Name: "test", Components: []config.Component{c}}, 1)
	s.host, s.logs, s.images = dir, dir, filepath.Join(dir, "images")
	err := s.run(context.Background()) // there is no ctr here
	if err == nil || !strings.Contains(err.Error(), "00000-x.tar") {
		t.Errorf("got %v", err)
	}
}
