package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const proc = "/proc"

// PIDs are the processes of this machine, of its nodes too.
func PIDs() (map[int]bool, error) { return pids(proc) }

func pids(root string) (map[int]bool, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			found[pid] = true
		}
	}
	return found, nil
}

// Process returns the process of a pod, given by its UID, that runs a program, given by its file's name; 0 when there is
// none. Processes in besides are not looked at, which makes it cheap to look often for one that will start.
func Process(uid, program string, besides map[int]bool) (int, error) {
	return process(proc, uid, program, besides)
}

func process(root, uid, program string, besides map[int]bool) (int, error) {
	all, err := pids(root)
	if err != nil {
		return 0, err
	}
	for pid := range all {
		if besides[pid] {
			continue
		}
		dir := filepath.Join(root, strconv.Itoa(pid))
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != program {
			continue // another, or one that has just ended
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err == nil && ofPod(group, uid) {
			return pid, nil
		}
	}
	return 0, nil
}

// ofPod says whether a process's control groups are those of a pod. systemd writes the UID with underscores.
func ofPod(groups []byte, uid string) bool {
	return bytes.Contains(groups, []byte("pod"+uid)) || bytes.Contains(groups, []byte("pod"+strings.ReplaceAll(uid, "-", "_")))
}

// Address returns the address of the network that a process lives in, its pod's.
func Address(pid int) (netip.Addr, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "net", "fib_trie"))
	if err != nil {
		return netip.Addr{}, err
	}
	return local(text)
}

// local is the first local address of a routing table that is not the loopback's: the line before "/32 host LOCAL".
func local(table []byte) (netip.Addr, error) {
	last := ""
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if a, ok := strings.CutPrefix(line, "|-- "); ok {
			last = a
			continue
		}
		if line != "/32 host LOCAL" {
			continue
		}
		if a, err := netip.ParseAddr(last); err == nil && !a.IsLoopback() {
			return a, nil
		}
	}
	return netip.Addr{}, errors.New("the routing table has no local address but the loopback's")
}

// Memory is what a process has in memory, in bytes.
type Memory struct {
	Resident  int64 // all of it
	Anonymous int64 // what no file backs
}

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	file := filepath.Join(proc, strconv.Itoa(pid), "status")
	text, err := os.ReadFile(file)
	if err != nil {
		return Memory{}, err
	}
	m, err := memory(text)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", file, err)
	}
	return m, nil
}

func memory(status []byte) (Memory, error) {
	var m Memory
	for _, f := range []struct {
		name string
		into *int64
	}{{"VmRSS", &m.Resident}, {"RssAnon", &m.Anonymous}} {
		_, rest, ok := bytes.Cut(status, []byte(f.name+":"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(string(line), "kB")), 10, 64)
		if !ok || err != nil {
			return m, fmt.Errorf("no number of kB for %s", f.name)
		}
		*f.into = kib << 10
	}
	return m, nil
}

// ProgramSize is the size of the file that a process runs, in bytes, as it lies in its image.
func ProgramSize(pid int) (int64, error) {
	info, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid), "exe"))
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("%w: run as root, as the cluster does", err)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
