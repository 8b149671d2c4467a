package member

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// insideArg marks the second life of an init, inside its cgroup namespace.
const insideArg = "inside"

// Init is the first process of a member's namespaces: InitCommand's arguments are args. It returns only
// when the member must end.
func Init(args []string) error {
	switch {
	case len(args) == 1:
		return waitAndUnshare(args[0])
	case len(args) == 2 && args[1] == insideArg:
		return inside(args[0])
	}
	return errors.New("init is started by up and by node restart, never by hand")
}

// waitAndUnshare waits until the starter has moved this process to its cgroups, makes them the root of all
// that is seen, and goes on as a new program: a cgroup namespace belongs to one thread, and exec ends the others.
func waitAndUnshare(dir string) error {
	pipe := os.NewFile(3, "go-ahead")
	text, err := io.ReadAll(io.LimitReader(pipe, int64(len(goAhead))))
	if err != nil || string(text) != goAhead {
		return fmt.Errorf("wait for the go-ahead: the starter ended before: %w", errors.Join(errors.New("no message"), err))
	}
	if err := pipe.Close(); err != nil {
		return err
	}
	const cloneNewCgroup = 0x02000000
	runtime.LockOSThread()
	if err := syscall.Unshare(cloneNewCgroup); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	env := []string{"PATH=" + config.Path, "HOME=/root", "LANG=C.UTF-8"}
	return syscall.Exec("/proc/self/exe", []string{"cluster", InitCommand, dir, insideArg}, env)
}

func inside(dir string) error {
	var spec Spec
	if err := readJSON(filepath.Join(dir, specFile), &spec); err != nil {
		return fmt.Errorf("read the init's specification: %w", err)
	}
	// /proc is still the machine's: this is the number that the host knows.
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	var pid int
	if _, err := fmt.Sscan(self, &pid); err != nil {
		return err
	}
	if err := moveIn(spec); err != nil {
		return fmt.Errorf("build the root of %s: %w", spec.Name, err)
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	return newSupervisor(spec, pid).run(stop)
}

func moveIn(spec Spec) error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	id, err := machineID(filepath.Join(spec.Dir, "machine-id"))
	if err != nil {
		return err
	}
	h, err := observe()
	if err != nil {
		return err
	}
	root := filepath.Join(spec.Dir, "root")
	if err := apply(plan(spec, h, root, id)); err != nil {
		return err
	}
	if err := enterRoot(root); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// machineID returns the number that a kubelet reports for its machine; it stays over restarts of the member.
func machineID(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(text))) == 32 {
		return strings.TrimSpace(string(text)), nil
	}
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	id := hex.EncodeToString(b[:])
	return id, os.WriteFile(file, []byte(id+"\n"), 0o644)
}
