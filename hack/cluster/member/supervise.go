package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

const (
	readyPause  = 100 * time.Millisecond
	firstPause  = 500 * time.Millisecond // before a component that ended starts again; doubled each time
	longPause   = 10 * time.Second
	steadyAfter = time.Minute // a component that ran this long starts with firstPause again
	stopWait    = 10 * time.Second
)

// supervisor is the init inside the member's root: it starts the components in order, starts again what
// ends, and collects every process that lost its parent.
type supervisor struct {
	spec Spec
	// host, logs and images are the folders that config names for the inside of a member.
	host, logs, images string

	mu     sync.Mutex // guards all below
	exits  map[int]chan syscall.WaitStatus
	status Status
}

func newSupervisor(spec Spec, pid int) *supervisor {
	s := &supervisor{spec: spec, host: config.Host, logs: config.Logs, images: config.Images,
		exits: map[int]chan syscall.WaitStatus{}, status: Status{PID: pid, Phase: Starting}}
	for _, c := range spec.Components {
		s.status.Components = append(s.status.Components, ComponentStatus{Name: c.Name})
	}
	return s
}

// run returns when stop is done and the components have ended; what is left then ends with the init.
func (s *supervisor) run(stop context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer close(children)
	defer signal.Stop(children)
	go func() {
		for range children {
			s.reap()
		}
	}()
	var runs sync.WaitGroup
	defer runs.Wait()
	stop, cancel := context.WithCancel(stop)
	defer cancel()
	for i, c := range s.spec.Components {
		if err := s.report(func(st *Status) { st.Waiting = c.Name }); err != nil {
			return err
		}
		runs.Go(func() { s.keep(stop, i, c) })
		if err := s.ready(stop, c); err != nil {
			return err
		}
	}
	if err := s.report(func(st *Status) { st.Phase, st.Waiting = Running, "" }); err != nil {
		return err
	}
	<-stop.Done()
	return nil
}

// ready returns when c can be used, and its images are there.
func (s *supervisor) ready(stop context.Context, c config.Component) error {
	for len(c.Ready) > 0 && s.once(stop, "ready", c.Ready) != nil {
		select {
		case <-stop.Done():
			return context.Cause(stop)
		case <-time.After(readyPause):
		}
	}
	if !c.Images {
		return nil
	}
	archives, err := os.ReadDir(s.images)
	if err != nil {
		return fmt.Errorf("list the image archives: %w", err)
	}
	for _, a := range archives {
		if !strings.HasSuffix(a.Name(), ".tar") || Imported(s.host, a.Name()) {
			continue
		}
		if err := s.once(stop, "import", config.ImportCommand(a.Name())); err != nil {
			return fmt.Errorf("import image archive %s: %w", a.Name(), err)
		}
		if err := MarkImported(s.host, a.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Imported says whether the member in dir has an archive already.
func Imported(dir, archive string) bool {
	_, err := os.Stat(filepath.Join(dir, importedDir, archive))
	return err == nil
}

// MarkImported records that the member in dir has an archive.
func MarkImported(dir, archive string) error {
	return os.WriteFile(filepath.Join(dir, importedDir, archive), nil, 0o644)
}

// keep runs c until stop is done, again and again.
func (s *supervisor) keep(stop context.Context, i int, c config.Component) {
	pause := firstPause
	for stop.Err() == nil {
		began := time.Now()
		how := s.life(stop, i, c)
		if stop.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			pause = firstPause
		}
		s.log("component ended", c.Name, how)
		select {
		case <-stop.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longPause)
	}
}

// life is one run of c; it returns how that ended.
func (s *supervisor) life(stop context.Context, i int, c config.Component) string {
	pid, exit, err := s.start(c.Name, c.Command)
	how := ""
	if err == nil {
		s.note(i, func(cs *ComponentStatus) { cs.PID = pid })
		how = s.await(stop, pid, exit)
	} else {
		how = err.Error()
	}
	s.note(i, func(cs *ComponentStatus) { cs.PID, cs.Exits, cs.LastExit = 0, cs.Exits+1, how })
	return how
}

// await waits for the end of a process; when stop is done first it asks for that end, and then forces it.
func (s *supervisor) await(stop context.Context, pid int, exit <-chan syscall.WaitStatus) string {
	select {
	case st := <-exit:
		return describe(st)
	case <-stop.Done():
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err.Error()
		}
		select {
		case st := <-exit:
			return describe(st)
		case <-time.After(stopWait):
		}
	}
	return "does not end"
}

func describe(st syscall.WaitStatus) string {
	if st.Signaled() {
		return "signal " + st.Signal().String()
	}
	return fmt.Sprintf("exit status %d", st.ExitStatus())
}

// once runs a command to its end.
func (s *supervisor) once(stop context.Context, log string, command []string) error {
	pid, exit, err := s.start(log, command)
	if err != nil {
		return err
	}
	if how := s.await(stop, pid, exit); how != "exit status 0" {
		return fmt.Errorf("%s: %s; see %s/%s.log", strings.Join(command, " "), how, s.logs, log)
	}
	return nil
}

// start starts a command with its output appended to a log. The lock covers start and entry in exits, so
// that reap never meets a child that it does not know.
func (s *supervisor) start(log string, command []string) (int, <-chan syscall.WaitStatus, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, nil, err
	}
	out, err := os.OpenFile(filepath.Join(s.logs, log+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = null.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(path, slices.Clone(command), &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	exit := make(chan syscall.WaitStatus, 1)
	s.exits[pid] = exit
	return pid, exit, nil
}

// reap collects every child that has ended.
func (s *supervisor) reap() {
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		s.mu.Lock()
		if exit, known := s.exits[pid]; known {
			exit <- st
			delete(s.exits, pid)
		}
		s.mu.Unlock()
	}
}

// report changes the status and writes it to the member's folder.
func (s *supervisor) report(change func(*Status)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	return writeJSON(filepath.Join(s.host, statusFile), s.status)
}

func (s *supervisor) note(i int, change func(*ComponentStatus)) {
	if err := s.report(func(st *Status) { change(&st.Components[i]) }); err != nil {
		s.log("status not written", s.spec.Components[i].Name, err.Error())
	}
}

// log writes a line to the init's log.
func (s *supervisor) log(what, component, detail string) {
	fmt.Fprintf(os.Stderr, "%s %s component=%s detail=%q\n", time.Now().UTC().Format(time.RFC3339), what, component, detail)
}
