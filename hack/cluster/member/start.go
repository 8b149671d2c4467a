package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// InitCommand is the hidden command that Start runs this very program with; main hands it to Init.
const InitCommand = "init"

// startWait covers the import of many images.
const startWait = 10 * time.Minute

// hopeless is how often a component may end while its member starts; by then that took about eight seconds.
const hopeless = 5

// goAhead is what an init waits for. An init whose starter ends before it has sent this ends too.
const goAhead = "go\n"

// Start starts a member that does not run, and returns once its namespaces and network are there. wait then
// returns when its init has started every component. An interrupted Start leaves either nothing that runs,
// or a member that Started denies.
func Start(ctx context.Context, s config.Settings, spec Spec) (wait func(context.Context) error, err error) {
	if err := prepare(ctx, s, spec); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", spec.Name, err)
	}
	child, send, err := launch(spec)
	if err != nil {
		return nil, fmt.Errorf("start the init of %s: %w", spec.Name, err)
	}
	defer func() { _ = send.Close() }()
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	pid := child.Process.Pid
	err = register(ctx, s, spec, pid)
	if err == nil {
		_, err = send.WriteString(goAhead)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", spec.Name, err), child.Process.Kill())
	}
	return func(ctx context.Context) error {
		return await(ctx, startWait, "start of "+spec.Name, func() (bool, error) {
			select {
			case err := <-ended:
				return false, fmt.Errorf("start %s: its init ended: %w", spec.Name, errors.Join(errors.New("see "+InitLog(spec.Dir)), err))
			default:
			}
			st, err := ReadStatus(spec.Dir)
			if err != nil || st.PID != pid {
				return false, err
			}
			return st.Phase == Running, Hopeless(st, Status{})
		})
	}, nil
}

// Hopeless is an error when a component ended again and again since an earlier status.
func Hopeless(now, earlier Status) error {
	for i, c := range now.Components {
		before := 0
		if i < len(earlier.Components) && earlier.PID == now.PID {
			before = earlier.Components[i].Exits
		}
		if c.Exits-before >= hopeless {
			return fmt.Errorf("component %s ends again and again, last by %s", c.Name, c.LastExit)
		}
	}
	return nil
}

func prepare(ctx context.Context, s config.Settings, spec Spec) error {
	if err := SweepCgroups(ctx, s.Cgroup, spec.Name); err != nil {
		return err
	}
	for _, d := range []string{"root", ConfigDir, LogDir, importedDir} {
		if err := os.MkdirAll(filepath.Join(spec.Dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range []string{pidFile, statusFile} {
		if err := os.Remove(filepath.Join(spec.Dir, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return writeJSON(filepath.Join(spec.Dir, specFile), spec)
}

// launch starts this program as first process of new namespaces; it waits for goAhead on descriptor 3.
func launch(spec Spec) (*exec.Cmd, *os.File, error) {
	log, err := os.OpenFile(InitLog(spec.Dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = log.Close() }()
	receive, send, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = receive.Close() }()
	c := exec.Command("/proc/self/exe", InitCommand, spec.Dir)
	c.Stdout, c.Stderr, c.ExtraFiles, c.Dir = log, log, []*os.File{receive}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := c.Start(); err != nil {
		return nil, nil, errors.Join(err, send.Close())
	}
	return c, send, nil
}

// register records the init, so that it can be found from now on, and gives it its cgroups and network.
func register(ctx context.Context, s config.Settings, spec Spec, pid int) error {
	id, err := identify(pid)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(spec.Dir, pidFile), id); err != nil {
		return err
	}
	if err := joinCgroups(s.Cgroup, spec.Name, spec.Hub, pid); err != nil {
		return err
	}
	return wire(ctx, s, spec.Name, pid)
}
