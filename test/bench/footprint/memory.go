package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/hack/demo/ask"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/cluster"
)

const (
	// settle is how long nothing is asked before memory is read: the runtime gives pages back in the background.
	settle = 20 * time.Second
	// reads of the memory, and the time between them.
	reads   = 5
	between = time.Second
)

// component is a program that runs in pods.
type component struct {
	name      string
	namespace string
	disk, rss float64 // goals in MB
}

var components = []component{
	{"router", namespace, 60, 60},
	{"manager", cluster.SystemNamespace, 80, 80},
	{"worker", namespace, 40, 350},
}

// cliGoal is the CLI's goal on disk in MB.
const cliGoal = 60

// process is a running program, and what was measured of it.
type process struct {
	component
	pid    int
	size   int64 // bytes of the file it runs
	memory cluster.Memory
}

// warm has the model answer once, so that nothing measured is still to be made for a first request.
func warm(ctx context.Context, url, model string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	_, err := ask.Client{HTTP: &http.Client{Transport: transport}, Clock: clock.RealClock{}}.Stream(ctx,
		ask.Question{URL: url, Model: model, Prompt: "What is the capital of France?", MaxTokens: 16}, io.Discard)
	return err
}

// processes finds those of all programs; there may be several of one.
func processes(ctx context.Context, c *cluster.Cluster) ([]process, error) {
	var found []process
	for _, p := range components {
		var pods corev1.PodList
		if err := c.API.List(ctx, &pods, client.InNamespace(p.namespace), client.MatchingLabels{v1alpha1.LabelComponent: p.name}); err != nil {
			return nil, fmt.Errorf("list the pods of the %s: %w", p.name, err)
		}
		n := len(found)
		for _, pod := range pods.Items {
			pid, err := cluster.Process(string(pod.UID), p.name, nil)
			if err != nil {
				return nil, err
			}
			if pid != 0 {
				found = append(found, process{component: p, pid: pid})
			}
		}
		if len(found) == n {
			return nil, fmt.Errorf("none of the %d pods of the %s in namespace %s has a process on this machine", len(pods.Items), p.name, p.namespace)
		}
	}
	return found, nil
}

// rest waits, and reads sizes and the memory of processes, of several reads the greatest.
func rest(ctx context.Context, found []process) ([]process, error) {
	if err := command.Pause(ctx, settle); err != nil {
		return nil, err
	}
	for range reads {
		for i := range found {
			p := &found[i]
			m, err := cluster.MemoryOf(p.pid)
			if err != nil {
				return nil, fmt.Errorf("the %s did not live through the measurement: %w", p.name, err)
			}
			if p.size, err = cluster.ProgramSize(p.pid); err != nil {
				return nil, err
			}
			p.memory.Resident, p.memory.Anonymous = max(p.memory.Resident, m.Resident), max(p.memory.Anonymous, m.Anonymous)
		}
		if err := command.Pause(ctx, between); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// sizeFigures are the greatest of each program. 1 MB is 10⁶ bytes.
func sizeFigures(found []process, cli int64) []bench.Figure {
	var disk, memory []bench.Figure
	for _, p := range components {
		var size int64
		var m cluster.Memory
		for _, f := range found {
			if f.name == p.name {
				size, m.Resident, m.Anonymous = max(size, f.size), max(m.Resident, f.memory.Resident), max(m.Anonymous, f.memory.Anonymous)
			}
		}
		what := p.name
		if what == "worker" {
			what += " with the demo model"
		}
		disk = append(disk, bench.AtMost(p.name+" on disk", mb(size), "MB", p.disk))
		memory = append(memory, bench.AtMost(what+", idle, resident", mb(m.Resident), "MB", p.rss),
			bench.Plain(what+", idle, of it anonymous", mb(m.Anonymous), "MB"))
	}
	disk = append(disk, bench.AtMost("kubectl-ringfleet on disk", mb(cli), "MB", cliGoal))
	return append(disk, memory...)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// cliSize builds the CLI as `make build` does and returns its size in bytes.
func cliSize(ctx context.Context, root string) (int64, error) {
	dir, err := os.MkdirTemp("", "ringfleet-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubectl-ringfleet")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "./cli")
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build ./cli: %w: %s", err, text)
	}
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
