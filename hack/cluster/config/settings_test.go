package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

func parseWith(getenv func(string) string, args ...string) (config.Settings, error) {
	var f config.Flags
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	if err := f.Bind(fs, getenv); err != nil {
		return config.Settings{}, err
	}
	if err := fs.Parse(args); err != nil {
		return config.Settings{}, err
	}
	return f.Settings("/state")
}

func parse(args ...string) (config.Settings, error) {
	return parseWith(func(string) string { return "" }, args...)
}

var refusals = map[string]struct {
	args []string
	want string // part of the refusal; "" means accepted
}{
	"defaults are accepted":                    {nil, ""},
	"a network must be a /24":                  {[]string{"--net=10.1.0.0/16"}, "--net"},
	"a network's host bits must be zero":       {[]string{"--net=10.1.0.7/24"}, "--net"},
	"IPv6 is refused":                          {[]string{"--svcnet=fd00::/16"}, "--svcnet"},
	"text is no network":                       {[]string{"--podnet=ten"}, "--podnet"},
	"networks may not overlap":                 {[]string{"--podnet=10.96.0.0/16"}, "overlap"},
	"a node may be named only once":            {[]string{"--nodes=a,a"}, "named twice"},
	"a node may not be called hub":             {[]string{"--nodes=hub"}, "hub"},
	"a node's name fits its link":              {[]string{"--nodes=abcdefghijklmn"}, "13"},
	"there must be a node":                     {[]string{"--nodes="}, "1 to 64"},
	"an interface's name has 15 bytes":         {[]string{"--iface=abcdefghijklmnop"}, "--iface"},
	"a cgroup is one folder":                   {[]string{"--cgroup=a/b"}, "--cgroup"},
	"a cgroup may not lead upwards":            {[]string{"--cgroup=.."}, "--cgroup"},
	"the state folder must be an absolute one": {[]string{"--state=x"}, "--state"},
	"a share may not be negative":              {[]string{"--node-cpu=-1"}, "--node-cpu"},
}

func TestWhichSettingsAreRefused(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.args...)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}
}

func TestCgroupInterfaceAndStateFollowFromTheName(t *testing.T) {
	s := settings(t, "--name=a-rather-long-name")
	if s.Cgroup != "a-rather-long-name" || s.Interface != "rf-a-rather-lon" || s.State != "/state/cluster-a-rather-long-name" {
		t.Errorf("got %+v", s)
	}
}

func TestAFlagWinsOverItsEnvironmentVariable(t *testing.T) {
	env := func(k string) string {
		return map[string]string{"CLUSTER_NET": "10.7.0.0/24", "CLUSTER_NODES": "x,y,z", "CLUSTER_NODE_CPU": "700"}[k]
	}
	s, err := parseWith(env, "--net=10.8.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	if s.Net.String() != "10.8.0.0/24" || len(s.Nodes) != 3 || s.NodeMilliCPU != 700 {
		t.Errorf("got %+v", s)
	}
}

func TestABadEnvironmentVariableIsNamed(t *testing.T) {
	_, err := parseWith(func(k string) string { return map[string]string{"CLUSTER_NODE_CPU": "much"}[k] })
	if err == nil || !strings.Contains(err.Error(), "CLUSTER_NODE_CPU=much") {
		t.Errorf("got %v", err)
	}
}

func TestAnExistingClusterTakesMoreNodesAndNothingElse(t *testing.T) {
	old := settings(t)
	for name, tc := range map[string]struct {
		args []string
		ok   bool
	}{
		"the same settings":            {nil, true},
		"another node":                 {[]string{"--nodes=n1,n2,n3"}, true},
		"other shares":                 {[]string{"--node-cpu=500"}, true},
		"a node fewer":                 {[]string{"--nodes=n1"}, false},
		"nodes in another order":       {[]string{"--nodes=n2,n1"}, false},
		"another network":              {[]string{"--net=10.9.0.0/24"}, false},
		"another network for Services": {[]string{"--svcnet=10.9.0.0/16"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := settings(t, tc.args...).Extends(old); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWhoNamesTheFirstNodesMeansAllOfThem(t *testing.T) {
	old := settings(t, "--nodes=n1,n2,n3")
	for name, tc := range map[string]struct{ nodes, want string }{
		"the first ones":        {"n1,n2", "n1,n2,n3"},
		"all of them":           {"n1,n2,n3", "n1,n2,n3"},
		"one more":              {"n1,n2,n3,n4", "n1,n2,n3,n4"},
		"others are not merged": {"n2", "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(settings(t, "--nodes="+tc.nodes).Keeping(old).Nodes, ","); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAnEvenShareOfTheMachineIsTheDefault(t *testing.T) {
	m := config.Machine{MilliCPU: 8000, MiB: 10000}
	if got := settings(t).Share(m); got != (config.Machine{MilliCPU: 4000, MiB: 5000}) {
		t.Errorf("default: got %+v", got)
	}
	if got := settings(t, "--node-cpu=1500", "--node-memory=99999").Share(m); got != (config.Machine{MilliCPU: 1500, MiB: 10000}) {
		t.Errorf("settings, at most the machine: got %+v", got)
	}
}

// routeTable is /proc/net/route with a default route and the given lines.
func routeTable(lines ...string) string {
	head := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	return head + strings.Join(lines, "\n") + "\n"
}

func TestARouteOfTheHostThatOverlapsIsFound(t *testing.T) {
	s := settings(t)
	for name, tc := range map[string]struct {
		line, want string
	}{
		"a default route clashes with nothing":   {"", ""},
		"another network":                        {"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", ""},
		"the cluster's own routes":               {"rf-ringfleet\t0000F50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", ""},
		"the members' network on a bridge":       {"br0\t0000F50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", "--net 10.245.0.0/24 overlaps the host's route 10.245.0.0/24 on br0"},
		"a company's 10.0.0.0/8 covers Services": {"tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0", "10.0.0.0/8 on tun0"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Clash(routeTable(tc.line))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzClash(f *testing.F) {
	f.Add(routeTable("br0\t0000F50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0"))
	f.Add("")
	f.Fuzz(func(t *testing.T, table string) {
		s, err := parse()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Clash(table); err != nil && !strings.Contains(err.Error(), "overlaps the host's route") {
			t.Error(err)
		}
	})
}
