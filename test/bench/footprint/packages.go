package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
)

const (
	module    = "github.com/ringfleet/ringfleet"
	clientGo  = "k8s.io/client-go"
	discovery = module + "/router/discovery"
)

// imports are the packages of a program by path, and what each of them imports.
type imports map[string][]string

// linked lists what the programs link, writes it to file, and returns its figures: how many packages, and how many of
// client-go where none should be.
func linked(ctx context.Context, root, file string) ([]bench.Figure, error) {
	var text strings.Builder
	var counts []bench.Figure
	all := map[string]imports{}
	for _, p := range []struct{ name, dir string }{{"router", "router"}, {"worker", "worker"}, {"manager", "controllers"}, {"kubectl-ringfleet", "cli"}} {
		i, err := list(ctx, root, "./"+p.dir, p.name == "worker")
		if err != nil {
			return nil, err
		}
		all[p.name] = i
		counts = append(counts, bench.Plain(p.name+", packages linked", float64(len(i)), "packages"))
		fmt.Fprintf(&text, "# %s: %d packages\n", p.name, len(i))
		for _, path := range slices.Sorted(maps.Keys(i)) {
			fmt.Fprintln(&text, path)
		}
	}
	router, worker := all["router"], all["worker"]
	past := of(router.reach(module+"/router", discovery), clientGo)
	direct := of(slices.Collect(maps.Keys(worker)), clientGo)
	fmt.Fprintf(&text, "# client-go in the router, but not through router/discovery: %v\n# client-go in the worker: %v\n", past, direct)
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	return append([]bench.Figure{
		bench.AtMost("router, packages of client-go not through router/discovery", float64(len(past)), "packages", 0),
		bench.AtMost("worker, packages of client-go", float64(len(direct)), "packages", 0),
		bench.Plain("router, packages of client-go in all", float64(len(of(slices.Collect(maps.Keys(router)), clientGo))), "packages"),
	}, counts...), nil
}

// list asks the go command for the packages of a program, built as its image is.
func list(ctx context.Context, root, dir string, cgo bool) (imports, error) {
	c := exec.CommandContext(ctx, "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "-tags", "netgo,osusergo", dir)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED="+map[bool]string{true: "1", false: "0"}[cgo])
	var complaint bytes.Buffer
	c.Stderr = &complaint
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", dir, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return parse(string(text)), nil
}

// parse reads lines of a package and its imports.
func parse(text string) imports {
	i := imports{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			i[f[0]] = f[1:]
		}
	}
	return i
}

// reach returns the packages that are reached from a package without passing through another; sorted.
func (i imports) reach(from, not string) []string {
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range i[queue[0]] {
			if !seen[next] && next != not {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// of returns the paths that belong to a module.
func of(paths []string, module string) []string {
	var out []string
	for _, p := range paths {
		if p == module || strings.HasPrefix(p, module+"/") {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}
