package command

import (
	"strings"
	"testing"
)

func TestAClusterOfItsOwnKeepsWhatTheUserHasSet(t *testing.T) {
	for name, c := range map[string]struct {
		set  string
		want string
	}{
		"nothing set":  {"", "CLUSTER_NAME CLUSTER_NET CLUSTER_PODNET CLUSTER_SVCNET"},
		"another name": {"CLUSTER_NAME", "CLUSTER_NET CLUSTER_PODNET CLUSTER_SVCNET"},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, s := range Own(func(k string) string { return map[string]string{c.set: "x"}[k] }) {
				key, _, _ := strings.Cut(s, "=")
				names = append(names, key)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%q, expected %q", got, c.want)
			}
		})
	}
}
