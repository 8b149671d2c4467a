//go:build e2e

package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// plugin runs bin/kubectl-ringfleet as a user would.
func plugin(t *testing.T, stdin string, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "../../bin/kubectl-ringfleet", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

func usePlugin(t *testing.T, m *v1alpha1.InferenceModel) {
	const ask = "Tell me the name of the capital of France."
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"a question":             {"", []string{"chat", m.Name, "--temperature=0", "--max-tokens=32", ask}, "Paris"},
		"a question from a file": {ask, []string{"chat", m.Name, "--temperature=0", "--max-tokens=32", "-q", "-"}, "Paris"},
		"a conversation":         {ask + "\n\n", []string{"chat", "org/Tiny-1.0", "--temperature=0", "--max-tokens=32"}, "Paris"},
		"the status":             {"", []string{"status", m.Name}, "2/2 in the ring"},
		"the check":              {"", []string{"check"}, "you may create InferenceModels in namespace " + m.Namespace},
	} {
		out, errs, err := plugin(t, c.stdin, append(c.args, "-n", m.Namespace)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, printed %q and %q, want %q", name, err, out, errs, c.want)
		}
	}
	if _, errs, err := plugin(t, "", "chat", "nobody", "hi", "-n", m.Namespace); err == nil || !strings.Contains(errs, "there are "+m.Name) {
		t.Errorf("a model that does not exist: %v, %q", err, errs)
	}
}
