// Package process starts programs, each in a process group of its own, reads their processor time and ends them with all
// that they started. Which programs, and what is asked of them, is the caller's decision.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec is what to start.
type Spec struct {
	Path string
	Args []string
	Dir  string
	Env  []string // besides this process's own
	// Line, where set, is called with each line of the program's standard output.
	Line func(string)
}

// Process is a program that was started.
type Process struct {
	name  string
	cmd   *exec.Cmd
	tail  *tail
	lines *lines
	ended chan struct{} // closed once err is set
	err   error
}

// Start starts a program. It ends at the latest when ctx does, or this process.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{name: filepath.Base(s.Path), cmd: exec.CommandContext(ctx, s.Path, s.Args...), tail: &tail{}, ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = s.Dir, append(os.Environ(), s.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	if s.Line != nil {
		p.lines = &lines{each: s.Line}
		p.cmd.Stdout = p.lines
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel = p.kill
	p.cmd.WaitDelay = 10 * time.Second // for output that someone else still holds open
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// kill ends the whole group.
func (p *Process) kill() error {
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Stop ends the process and its group, and waits for it.
func (p *Process) Stop() {
	_ = p.kill() // it may have ended
	<-p.ended
}

// Term asks the process to end, and waits for it.
func (p *Process) Term() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait()
}

// Wait waits until the process has ended by itself; an error has its last lines.
func (p *Process) Wait() error {
	<-p.ended
	_ = p.kill() // what it left behind
	if p.err != nil {
		return fmt.Errorf("%s: %w; its last lines:\n%s", p.name, p.err, p.tail)
	}
	return nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Lost says that the process has ended where it should not have.
func (p *Process) Lost() error {
	return fmt.Errorf("%s ended by itself; its last lines:\n%s", p.name, p.tail)
}

// Run runs a program to its end and returns its standard output.
func Run(ctx context.Context, s Spec) (string, error) {
	var out strings.Builder
	s.Line = func(line string) { out.WriteString(line + "\n") }
	p, err := Start(ctx, s)
	if err != nil {
		return "", err
	}
	err = p.Wait()
	return out.String(), err
}

// CPU is the processor time that all threads of the process have used, and its children not. The process must run.
func (p *Process) CPU() (time.Duration, error) {
	var t unix.Timespec
	// The clock of a process by its number, as clock_getcpuclockid(3) makes it.
	if err := unix.ClockGettime(^int32(p.cmd.Process.Pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of %s: %w", p.name, err)
	}
	return time.Duration(t.Nano()), nil
}

// Port returns a port of the loopback interface that nobody listens on.
func Port() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close() //nolint:errcheck // nothing was accepted
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Load is the machine's load average of the last minute.
func Load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0, fmt.Errorf("read /proc/loadavg: %w", err)
	}
	return load, nil
}

// keep is how much of a program's output is kept.
const keep = 4 << 10

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-keep):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// lines calls each with every whole line. One goroutine writes.
type lines struct {
	each func(string)
	rest string
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.rest += string(b)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			return len(b), nil
		}
		l.each(line)
		l.rest = rest
	}
}
