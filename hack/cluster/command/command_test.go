package command

import (
	"bytes"
	"strings"
	"testing"
)

// run executes the tool with an environment of its own.
func run(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	var out, progress bytes.Buffer
	home := t.TempDir()
	root, err := New(func(k string) string {
		if k == "XDG_STATE_HOME" {
			return home
		}
		return env[k]
	}, &out, &progress)
	if err != nil {
		return "", err
	}
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), err
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range []string{"up", "down", "status", "kubeconfig", "load", "build", "assets", "node", "node kill", "node restart",
		"node partition", "node heal", "node via", "exec"} {
		got, err := run(t, nil, append(strings.Fields(c), "--help")...)
		if err != nil || !strings.Contains(got, "Usage:\n  cluster "+c) || !strings.Contains(got, "CLUSTER_NET") {
			t.Errorf("%s: %v\n%s", c, err, got)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"a bad setting":                       {nil, []string{"kubeconfig", "--net=x"}, "--net"},
		"a bad variable":                      {map[string]string{"CLUSTER_NODE_MEMORY": "x"}, []string{"kubeconfig"}, "CLUSTER_NODE_MEMORY"},
		"an unknown kind of cluster":          {map[string]string{"CLUSTER": "k3s"}, []string{"kubeconfig"}, "want kind"},
		"a command that kind does not have":   {map[string]string{"CLUSTER": "kind"}, []string{"status"}, "unset CLUSTER"},
		"a kubeconfig without a cluster":      {nil, []string{"kubeconfig"}, "run up"},
		"a kubeconfig without a kind cluster": {map[string]string{"CLUSTER": "kind"}, []string{"kubeconfig"}, "run up"},
		"status without a cluster":            {nil, []string{"status"}, "run up"},
		"load without an archive":             {nil, []string{"load"}, "at least 1 arg"},
		"exec without a command":              {nil, []string{"exec", "n1"}, "at least 2 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.env, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
