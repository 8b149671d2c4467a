package member

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/golden"
)

func TestTheWayToARoot(t *testing.T) {
	merged := map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
	for name, tc := range map[string]struct {
		hub bool
		h   host
	}{
		"root-hub": {true, host{top: merged, etc: []string{"passwd"}, devices: []string{"null"}, groups: []string{"cpu"}}},
		"root-node-v1": {false, host{top: map[string]string{"bin": "", "lib": "usr/lib"}, etc: []string{"passwd", "group"}, devices: []string{"null", "kmsg"},
			groups: []string{"cpu,cpuacct", "memory"}, aliases: map[string]string{"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"}}},
		"root-node-v2": {false, host{top: merged, groups: []string{"."}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{Name: "n1", Hub: tc.hub, Dir: "/state/n1", Kube: "/cache/kube", Containerd: "/cache/containerd", CoreDNS: "/cache/coredns", Images: "/state/images", Cgroup: "rf"}
			var b strings.Builder
			for _, s := range plan(spec, tc.h, "/state/n1/root", "0123") {
				fmt.Fprintln(&b, s)
			}
			golden.Check(t, name+".txt", b.String())
		})
	}
}

func TestStateAndStartOfAProcessWhoseNameHoldsParentheses(t *testing.T) {
	rest := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20"
	state, start, ok := parseStat("42 (a) b) (c)" + rest)
	if !ok || state != "S" || start != "777" {
		t.Errorf("got %q %q %v", state, start, ok)
	}
	for _, text := range []string{"", "42 (a", "42 (a) S 1"} {
		if _, _, ok := parseStat(text); ok {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestWhichLinksAreSwitchedOn(t *testing.T) {
	got := parseLinks("1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n" +
		"3: v-n1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n" +
		"5: v-n2@if2: <BROADCAST,MULTICAST> mtu 1500\n")
	want := map[string]bool{"lo": true, "v-n1": true, "v-n2": false}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAProcessThatEndedOrWasReplacedIsNotTheMember(t *testing.T) {
	dir := t.TempDir()
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	replaced, rebooted := self, self
	replaced.Start += "0"
	rebooted.Boot = "another"
	for name, tc := range map[string]struct {
		id   identity
		want int
	}{
		"the process itself":              {self, os.Getpid()},
		"a later process of that number":  {replaced, 0},
		"a process of before the reboot":  {rebooted, 0},
		"a number that no process can be": {identity{PID: 1 << 30}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if err := writeJSON(filepath.Join(dir, pidFile), tc.id); err != nil {
				t.Fatal(err)
			}
			got, err := PID(dir)
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v; want %d", got, err, tc.want)
			}
		})
	}
}

func TestAMemberIsStartedOnlyWhenItsInitSaysSo(t *testing.T) {
	dir := t.TempDir()
	started := func(want bool) {
		t.Helper()
		got, err := Started(dir)
		if err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	started(false)
	id, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, pidFile), id); err != nil {
		t.Fatal(err)
	}
	started(false)
	if err := writeJSON(filepath.Join(dir, statusFile), Status{PID: os.Getpid() + 1}); err != nil {
		t.Fatal(err)
	}
	started(false) // the word of an earlier init
	if err := writeJSON(filepath.Join(dir, statusFile), Status{PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	started(true)
}

func TestAComponentThatEndsAgainAndAgainIsHopeless(t *testing.T) {
	status := func(pid, exits int) Status {
		return Status{PID: pid, Components: []ComponentStatus{{Name: "etcd"}, {Name: "kubelet", Exits: exits, LastExit: "exit status 1"}}}
	}
	for name, tc := range map[string]struct {
		now, earlier Status
		want         string
	}{
		"a few ends are none":          {status(1, hopeless-1), Status{}, ""},
		"many are":                     {status(1, hopeless), Status{}, "component kubelet ends again and again, last by exit status 1"},
		"those of before do not count": {status(1, hopeless+3), status(1, hopeless), ""},
		"an earlier init hides none":   {status(2, hopeless), status(1, hopeless), "kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Hopeless(tc.now, tc.earlier)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEnteringAMemberTakesNothingOfTheCallersEnvironment(t *testing.T) {
	got := strings.Join(EnterArgs(7, []string{"ctr", "version"}), " ")
	want := "nsenter --target=7 --mount --net --pid --uts --ipc --cgroup --root --wd -- /usr/bin/env --ignore-environment PATH=" +
		config.Path + " HOME=/root LANG=C.UTF-8 ctr version"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20")
	f.Fuzz(func(t *testing.T, text string) {
		if state, start, ok := parseStat(text); ok && (state == "" || start == "") {
			t.Errorf("accepted %q as %q, %q", text, state, start)
		}
	})
}

func FuzzParseLinks(f *testing.F) {
	f.Add("3: v-n1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got := parseLinks(text); len(got) > strings.Count(text, "\n")+1 {
			t.Errorf("%d links in %q", len(got), text)
		}
	})
}
