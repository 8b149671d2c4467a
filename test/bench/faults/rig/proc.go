package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/router/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Process is a program of the rig that signals are sent to.
type Process struct {
	name string
	log  string
	run  *process.Process
}

// start starts a program with its output in a file.
func start(ctx context.Context, dir, name, path string, args ...string) (Process, error) {
	p := Process{name: name, log: filepath.Join(dir, name+".log")}
	// The log of an earlier process of that name stays.
	if old, err := os.ReadFile(p.log); err == nil {
		_ = os.WriteFile(p.log+".before", old, 0o600) // it is for people only
	}
	var err error
	p.run, err = peers.Quiet(ctx, p.log, path, args...)
	return p, err
}

// PID is its number.
func (p *Process) PID() int { return p.run.PID() }

func (p *Process) signal(s syscall.Signal) error {
	if p.run == nil {
		return fmt.Errorf("%s does not run", p.name)
	}
	if err := syscall.Kill(p.run.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// Kill ends it as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	if p.run != nil {
		p.run.Stop()
	}
}

// Stop stops it, as SIGSTOP does; Cont lets it go on.
func (p *Process) Stop() error { return p.signal(syscall.SIGSTOP) }

// Cont lets a stopped process go on.
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT) }

// Term asks it to end.
func (p *Process) Term() error { return p.signal(syscall.SIGTERM) }

// ended reports whether it does not run.
func (p *Process) ended() bool {
	if p.run == nil {
		return true
	}
	select {
	case <-p.run.Ended():
		return true
	default:
		return false
	}
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.run.Ended() }

// RSS is its resident memory in bytes.
func (p *Process) RSS() (int64, error) { return p.status("VmRSS") }

// Peak is the most resident memory that it has had, in bytes.
func (p *Process) Peak() (int64, error) { return p.status("VmHWM") }

// ResetPeak makes Peak begin anew.
func (p *Process) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0)
}

// Growth is how much more resident memory it has had while do ran than before, in bytes.
func (p *Process) Growth(do func() error) (float64, error) {
	all, err := Growth(do, p)
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// Growth is that of each of some processes.
func Growth(do func() error, of ...*Process) ([]float64, error) {
	all := make([]float64, len(of))
	for i, p := range of {
		if err := p.ResetPeak(); err != nil {
			return nil, err
		}
		before, err := p.RSS()
		if err != nil {
			return nil, err
		}
		all[i] = float64(before)
	}
	if err := do(); err != nil {
		return nil, err
	}
	for i, p := range of {
		most, err := p.Peak()
		if err != nil {
			return nil, err
		}
		all[i] = max(float64(most)-all[i], 0)
	}
	return all, nil
}

// status reads a size in kB.
func (p *Process) status(key string) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // it was read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && k == key {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: the kernel does not tell %s", p.name, key)
}

// CPU is the processor time that it has used.
func (p *Process) CPU() (time.Duration, error) { return p.run.CPU() }

// FDs is how many files it has open.
func (p *Process) FDs() (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	return len(list), err
}

// Log is the end of what it wrote.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.log)
	return strings.TrimSpace(string(text[max(0, len(text)-2048):]))
}

// ports hands out ports that nobody listens on. They lie below those that the kernel gives to connections, so that a
// process that is started anew finds its own free.
type ports struct {
	mu   sync.Mutex // guards next
	next int
}

const firstPort, lastPort = 14000, 31000

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == 0 {
		p.next = firstPort + rand.IntN(lastPort-firstPort-4000)
	}
	for ; p.next < lastPort; p.next++ {
		l, err := net.Listen("tcp", local(p.next))
		if err != nil {
			continue
		}
		_ = l.Close() // nothing was accepted
		p.next++
		return p.next - 1, nil
	}
	return 0, errors.New("no port is free")
}

// until asks again and again whether something is so, for as long as ctx and the time allow. The error of the last question
// is returned where it never was.
func until(ctx context.Context, most, every time.Duration, is func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := is(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
