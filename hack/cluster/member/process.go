package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// identity tells a process from a later one of the same number, over reboots too.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot
	Boot  string `json:"boot"`  // the kernel's boot id
}

const (
	poll     = 10 * time.Millisecond
	killWait = 20 * time.Second
)

// parseStat takes state and start time from the text of /proc/PID/stat, whose second field may hold anything.
func parseStat(text string) (state, start string, ok bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return "", "", false
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 20 {
		return "", "", false
	}
	return f[0], f[19], true
}

func identify(pid int) (identity, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return identity{}, err
	}
	state, start, ok := parseStat(string(text))
	if !ok || state == "Z" || state == "X" {
		return identity{}, fs.ErrNotExist // a zombie is dead
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return identity{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, err
}

// PID returns the process of the init of the member in dir, or 0 when it does not run.
func PID(dir string) (int, error) {
	var want identity
	err := readJSON(filepath.Join(dir, pidFile), &want)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if have, err := identify(want.PID); err == nil && have == want {
		return want.PID, nil
	}
	return 0, nil
}

// Started says whether the init in dir runs and was started completely: half a start is worth nothing.
func Started(dir string) (bool, error) {
	pid, err := PID(dir)
	if err != nil || pid == 0 {
		return false, err
	}
	s, err := ReadStatus(dir)
	return s.PID == pid, err
}

// Kill ends the member in dir, and with it all that it holds, by one SIGKILL of its init; it returns when
// the init is gone. A member that does not run is fine.
func Kill(ctx context.Context, dir string) error {
	pid, err := PID(dir)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d of %s: %w", pid, filepath.Base(dir), err)
	}
	return await(ctx, killWait, fmt.Sprintf("end of process %d of %s", pid, filepath.Base(dir)), func() (bool, error) {
		now, err := PID(dir)
		return now == 0, err
	})
}

// await polls until done says so, fails, or limit has passed.
func await(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
