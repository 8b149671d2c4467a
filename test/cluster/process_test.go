package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

const uid = "0b7c9c1e-6f1d-4a0e-9a53-0a4b3ed0a1c2"

func TestAPodsProcessIsFoundByItsGroupAndItsProgram(t *testing.T) {
	root := t.TempDir()
	write := func(pid, comm, group string) {
		dir := filepath.Join(root, pid)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"comm": comm + "\n", "cgroup": group} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("10", "worker", "0::/rf/kubepods/burstable/pod11111111-6f1d-4a0e-9a53-0a4b3ed0a1c2/c1\n")
	write("11", "pause", "0::/rf/kubepods/burstable/pod"+uid+"/c2\n")
	write("12", "worker", "4:memory:/kubepods/pod"+uid+"/c3\n0::/\n")
	write("13", "router", "0::/kubepods.slice/kubepods-pod0b7c9c1e_6f1d_4a0e_9a53_0a4b3ed0a1c2.slice/c4\n")
	write("self", "worker", "0::/kubepods/pod"+uid+"/c3\n")
	for name, c := range map[string]struct {
		program string
		besides map[int]bool
		want    int
	}{
		"the program of the pod, not its pause container nor another pod's": {"worker", nil, 12},
		"a group as systemd names it":                                       {"router", nil, 13},
		"a process that was there before is no news":                        {"worker", map[int]bool{12: true}, 0},
		"a program that the pod does not run":                               {"manager", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := process(root, uid, c.program, c.besides); err != nil || got != c.want {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestANetworksAddressIsReadFromItsRoutingTable(t *testing.T) {
	const loopback = "Local:\n  +-- 127.0.0.0/8 2 0 2\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 127.255.255.255\n        /32 link BROADCAST\n"
	const pod = "Main:\n  +-- 10.236.1.0/24 2 0 2\n     |-- 10.236.1.0\n        /24 link UNICAST\n     |-- 10.236.1.7\n        /32 host LOCAL\n"
	if a, err := local([]byte(loopback + pod)); err != nil || a.String() != "10.236.1.7" {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := local([]byte(loopback)); err == nil {
		t.Errorf("a network with the loopback alone has address %v", a)
	}
}

func TestMemoryIsReadFromTheKernelsStatus(t *testing.T) {
	if m, err := memory([]byte("Name:\tworker\nVmRSS:\t   2048 kB\nRssAnon:\t    512 kB\n")); err != nil || m != (Memory{Resident: 2 << 20, Anonymous: 512 << 10}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := memory([]byte("Name:\tkthread\n")); err == nil {
		t.Errorf("a process without memory has %+v", m)
	}
	if m, err := MemoryOf(os.Getpid()); err != nil || m.Resident < m.Anonymous || m.Anonymous == 0 {
		t.Errorf("this process: %+v, %v", m, err)
	}
	if n, err := ProgramSize(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("this program: %d bytes, %v", n, err)
	}
}
