package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// digests are as long as real ones.
var digestA, digestB = strings.Repeat("a", 64), strings.Repeat("b", 64)

func files(s stock) []string {
	var out []string
	for _, e := range s.Archives {
		out = append(out, e.File)
	}
	return out
}

func TestTheStockHoldsEveryImageOnceAndTheNewestLast(t *testing.T) {
	const a0, b1, a2 = "00000-aaaaaaaaaaaa.tar", "00001-bbbbbbbbbbbb.tar", "00002-aaaaaaaaaaaa.tar"
	type load struct {
		digest string
		names  []string
	}
	for name, tc := range map[string]struct {
		loads    []load
		want     []string
		isNew    bool
		unneeded []string
	}{
		"the same archive twice is one":                       {[]load{{digestA, []string{"x"}}, {digestA, []string{"x"}}}, []string{a0}, false, nil},
		"another image comes behind":                          {[]load{{digestA, []string{"x"}}, {digestB, []string{"y"}}}, []string{a0, b1}, true, nil},
		"a newer image replaces the older":                    {[]load{{digestA, []string{"x"}}, {digestB, []string{"x"}}}, []string{b1}, true, []string{a0}},
		"an archive with one image that is newest stays":      {[]load{{digestA, []string{"x", "y"}}, {digestB, []string{"x"}}}, []string{a0, b1}, true, nil},
		"going back to the older image makes it newest again": {[]load{{digestA, []string{"x", "y"}}, {digestB, []string{"x"}}, {digestA, []string{"x", "y"}}}, []string{a2}, true, []string{a0, b1}},
	} {
		t.Run(name, func(t *testing.T) {
			var s stock
			var isNew bool
			var unneeded []string
			for _, l := range tc.loads {
				_, isNew, unneeded = s.add(l.digest, l.names)
			}
			if got := files(s); !slices.Equal(got, tc.want) || isNew != tc.isNew || !slices.Equal(unneeded, tc.unneeded) {
				t.Errorf("got %q, new %v, unneeded %q", got, isNew, unneeded)
			}
		})
	}
}

func TestTheComponentThatEndedIsTheSuspect(t *testing.T) {
	ended := member.ComponentStatus{Name: "kube-apiserver", Exits: 3, LastExit: "exit status 1"}
	runs := member.ComponentStatus{Name: "etcd", PID: 7}
	for name, tc := range map[string]struct {
		status    member.Status
		component string
		why       string
	}{
		"one that ended, before the one waited for": {member.Status{Waiting: "etcd", Components: []member.ComponentStatus{runs, ended}}, "kube-apiserver", "ended 3 times, last by exit status 1"},
		"the one waited for":                        {member.Status{Waiting: "containerd", Components: []member.ComponentStatus{runs}}, "containerd", "not ready"},
		"the last, when all run":                    {member.Status{Components: []member.ComponentStatus{{Name: "x"}, runs}}, "etcd", "every component runs"},
		"the init, when nothing was started":        {member.Status{}, "", "did not start"},
	} {
		t.Run(name, func(t *testing.T) {
			component, why := suspect(tc.status)
			if component != tc.component || !strings.Contains(why, tc.why) {
				t.Errorf("got %q, %q", component, why)
			}
		})
	}
}

func TestAFailureNamesTheComponentTheLogAndItsLastLines(t *testing.T) {
	c := &Cluster{Settings: config.Settings{State: t.TempDir()}}
	dir := member.Dir(c.Settings, "n1")
	log := filepath.Join(dir, member.LogDir, "kubelet.log")
	for file, text := range map[string]string{
		filepath.Join(dir, "status.json"): `{"pid":1,"components":[{"name":"kubelet","exits":2,"lastExit":"exit status 255"}]}`,
		log:                               strings.Repeat("earlier\n", 40) + "the last words\n",
	} {
		if err := write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	cause := errors.New("node n1 is not ready")
	got := c.explain(&memberError{member: "n1", err: cause}).Error()
	for _, want := range []string{"node n1 is not ready", "component kubelet ended 2 times, last by exit status 255", log, "the last words"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "earlier"); n != logLines-1 {
		t.Errorf("%d earlier lines, want %d", n, logLines-1)
	}
}

func TestAMountBelowAFolderIsFound(t *testing.T) {
	const info = "36 25 8:1 / / rw - ext4 /dev/vda rw\n37 36 0:5 / /state/a/root rw - tmpfs x rw\n38 36 0:6 / /statement rw - tmpfs x rw\n"
	for dir, want := range map[string]string{"/state": "/state/a/root", "/stat": "", "/state/a/root": "/state/a/root", "/other": ""} {
		if got := mountBelow(info, dir); got != want {
			t.Errorf("below %s: got %q, want %q", dir, got, want)
		}
	}
}

func TestTheTableOfMembers(t *testing.T) {
	got := table([]row{
		{name: "hub", address: "10.0.0.1", pid: 5, started: true, linked: true, ready: "-"},
		{name: "n1", address: "10.0.0.2", pods: "10.1.1.0/24", pid: 6, started: true, ready: "no", exits: 2},
		{name: "n2", address: "10.0.0.3", pods: "10.1.2.0/24", ready: "no"},
		{name: "n3", address: "10.0.0.4", pods: "10.1.3.0/24", pid: 8, linked: true, ready: "no"},
	})
	want := `MEMBER   STATE          PID   READY   ADDRESS    PODS          COMPONENTS ENDED
hub      running        5     -       10.0.0.1   -             0
n1       cut off        6     no      10.0.0.2   10.1.1.0/24   2
n2       gone           -     no      10.0.0.3   10.1.2.0/24   0
n3       half started   8     no      10.0.0.4   10.1.3.0/24   0
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestTheMachinesMemory(t *testing.T) {
	if got, err := totalMiB("MemFree: 1 kB\nMemTotal:       24683656 kB\n"); err != nil || got != 24105 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := totalMiB("nothing"); err == nil {
		t.Error("no error without MemTotal")
	}
}

// cluster is one without members, in a folder of the test.
func cluster(t *testing.T) (*Cluster, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return &Cluster{Settings: config.Settings{Name: "x", State: filepath.Join(t.TempDir(), "state"),
		Net: netip.MustParsePrefix("10.1.0.0/24")}, Out: &out,
		Clock: clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))}, &out
}

func TestTwoCommandsDoNotWorkOnOneClusterAtOnce(t *testing.T) {
	c, out := cluster(t)
	unlock, err := c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("second lock: got %v", err)
	}
	if !strings.Contains(out.String(), "another command works on this cluster") {
		t.Errorf("said %q", out.String())
	}
	unlock()
	again, err := c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestALockOnAFolderThatDownRemovedIsNone(t *testing.T) {
	c, _ := cluster(t)
	unlock, err := c.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	dir, err := os.Open(c.Settings.State)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if !same(dir, c.Settings.State) {
		t.Error("the folder is not itself")
	}
	if err := os.RemoveAll(c.Settings.State); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.Settings.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if same(dir, c.Settings.State) {
		t.Error("a folder made anew counts as the one before")
	}
}

func TestKeysAreMadeOnceAndReadBack(t *testing.T) {
	c, _ := cluster(t)
	c.Settings.Nodes = []string{"n1"}
	first, err := c.loadKeys()
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.loadKeys()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.authority.CertPEM, second.authority.CertPEM) || !bytes.Equal(first.saPrivate, second.saPrivate) {
		t.Error("the second run has other keys")
	}
	for _, f := range []string{"ca.key", "admin.key"} {
		fi, err := os.Stat(c.file(pkiDir, f))
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, fi, err)
		}
	}
}

func TestDownRemovesNoFolderThatHoldsSomethingElse(t *testing.T) {
	c, _ := cluster(t)
	if err := c.removable(); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := write(c.file(settingsFile), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.removable(); err != nil {
		t.Errorf("a cluster's folder: %v", err)
	}
	if err := write(c.file("thesis.tex"), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.removable(); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("a folder with a stranger's file: got %v", err)
	}
}

func TestEveryCommandButUpAndDownAsksForACluster(t *testing.T) {
	c, _ := cluster(t)
	ctx := context.Background()
	_, enter := c.EnterArgs("n1", []string{"true"})
	for name, err := range map[string]error{
		"status": c.Status(ctx), "load": c.LoadImages(ctx, []string{"x.tar"}), "kill": c.Kill(ctx, "n1"),
		"restart": c.Restart(ctx, "n1"), "partition": c.SetPartition(ctx, "n1", true), "exec": enter,
	} {
		if err == nil || !strings.Contains(err.Error(), "run up") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := os.Stat(c.Settings.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("they made the state folder: %v", err)
	}
}
