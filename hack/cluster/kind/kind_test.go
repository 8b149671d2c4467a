package kind

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeKind puts a program named kind on PATH that records its arguments and what it reads, and knows one cluster.
func fakeKind(t *testing.T) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	script := "#!/bin/sh\nif [ \"$1 $2\" = 'get clusters' ]; then echo existing; exit; fi\necho \"$@\" >>" + log + "\n[ \"$1\" != create ] || cat >>" + log + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kind"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

func TestTheVerbsReachKind(t *testing.T) {
	const head = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: control-plane\n"
	for name, tc := range map[string]struct {
		name string
		do   func(Cluster) error
		want string
	}{
		"a new cluster is made with its workers": {"new", func(c Cluster) error { return c.Up(context.Background(), []string{"a.tar"}) },
			"create cluster --name new --kubeconfig FILE --config - --wait 5m\n" + head + "- role: worker\n- role: worker\nload image-archive a.tar --name new\n"},
		"a cluster that exists stays": {"existing", func(c Cluster) error { return c.Up(context.Background(), nil) },
			"export kubeconfig --name existing --kubeconfig FILE\n"},
		"down deletes it": {"existing", func(c Cluster) error { return c.Down(context.Background()) },
			"delete cluster --name existing --kubeconfig FILE\n"},
	} {
		t.Run(name, func(t *testing.T) {
			log := fakeKind(t)
			file := filepath.Join(t.TempDir(), "kubeconfig")
			var out bytes.Buffer
			if err := tc.do(Cluster{Name: tc.name, Workers: 2, Kubeconfig: file, Out: &out}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(log)
			if err != nil || string(got) != strings.ReplaceAll(tc.want, "FILE", file) {
				t.Errorf("%v, got:\n%s", err, got)
			}
		})
	}
}

func TestAKubeconfigThatIsNotThereSaysToRunUp(t *testing.T) {
	_, err := Cluster{Name: "x", Kubeconfig: filepath.Join(t.TempDir(), "none")}.KubeconfigFile(context.Background())
	if err == nil || !strings.Contains(err.Error(), "run up") {
		t.Errorf("got %v", err)
	}
}
