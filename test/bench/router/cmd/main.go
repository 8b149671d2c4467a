// Command cmd measures the router beside Envoy and vLLM's router, in front of the same workers, in turns. It writes
// bench/out/router.*, and fails only when it can't measure. It plays the workers, Ringfleet's router and the load itself, each
// in a process of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/router/measure"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
	"github.com/ringfleet/ringfleet/test/bench/router/ours"
	"github.com/ringfleet/ringfleet/test/bench/router/peers"
	"github.com/ringfleet/ringfleet/test/bench/tables"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// options are the flags.
type options struct {
	turns    int
	quick    bool
	only     string
	peers    string
	profiles string
	update   bool
	most     time.Duration
}

func (o *options) bind(f *flag.FlagSet) {
	f.IntVar(&o.turns, "turns", 7, "how often each router takes its turn")
	f.BoolVar(&o.quick, "quick", false, "one turn, to see that everything works")
	f.StringVar(&o.only, "only", "", "only these measures, separated by commas: "+strings.Join(measure.Names(), ", "))
	f.StringVar(&o.peers, "peers", strings.Join(peers.Names(), ","), "the routers to measure beside; empty for none")
	f.StringVar(&o.profiles, "profiles", "", "a folder for CPU profiles of Ringfleet's router, which cost it a little")
	f.BoolVar(&o.update, "update", false, "write the table into docs/benchmarks.md, too")
	f.DurationVar(&o.most, "timeout", time.Hour, "how long all may take; what was measured until then is written")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-router:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 {
		if role, ok := roles[args[0]]; ok {
			return role(ctx, []byte(args[1]), out)
		}
	}
	var o options
	f := flag.NewFlagSet("bench-router", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.quick {
		o.turns = 1
	}
	switch {
	case o.turns < 1:
		return fmt.Errorf("--turns %d: want 1 or more", o.turns)
	case o.update && o.profiles != "":
		return errors.New("--update: the documentation has runs without profiles only")
	case o.update && (o.only != "" || o.turns < 7):
		return errors.New("--update: the documentation has whole runs of 7 turns only")
	}
	return o.measure(ctx, out)
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// measure runs the bench and writes what came of it.
func (o options) measure(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.most)
	defer cancel()
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ringfleet-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load, err := process.Load()
	if err != nil {
		return err
	}
	h := bench.Here("router", "The router beside its peers")
	h.Machine[tables.Load] = strconv.FormatFloat(load, 'f', 2, 64)
	present, absent := peers.Present(split(o.peers))
	for _, p := range absent {
		fmt.Fprintf(out, "%s is not installed: left out\n", p)
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	rig := &measure.Rig{Dir: dir, Root: root, Program: program, Profiles: o.profiles, Out: out, Peers: present}
	for _, p := range rig.Peers {
		h.Versions[p] = peers.Version(p)
	}
	rows, bad := rig.Run(ctx, o.turns, split(o.only))
	if len(rows) == 0 {
		return bad
	}
	fmt.Fprintln(out, "\n"+tables.Markdown(h, intro(h), rows))
	bad = errors.Join(bad, tables.Write(filepath.Join(root, "bench", "out"), h, intro(h), rows))
	if o.update && bad == nil {
		bad = tables.Publish(filepath.Join(root, "docs", "benchmarks.md"), "bench-router", h, intro(h), rows)
	}
	return bad
}

// intro is what to know before the table.
func intro(h bench.Head) string {
	var b strings.Builder
	b.WriteString("Ringfleet's router whole: admission, prefix index, placement, metrics and log on, mutual TLS to its workers; the others speak HTTP to theirs.")
	for _, p := range peers.Names() {
		if v := h.Versions[p]; v != "" {
			fmt.Fprintf(&b, " %s %s.", p, v)
		}
	}
	return b.String() + "\n"
}

// roles are what this program does as a child of itself.
var roles = map[string]func(ctx context.Context, spec []byte, out io.Writer) error{
	measure.RoleHTTP: func(ctx context.Context, spec []byte, _ io.Writer) error {
		var w measure.Workers
		if err := json.Unmarshal(spec, &w); err != nil {
			return err
		}
		return serve(ctx, w)
	},
	measure.RoleGRPC: func(ctx context.Context, spec []byte, _ io.Writer) error {
		var w measure.Workers
		if err := json.Unmarshal(spec, &w); err != nil {
			return err
		}
		return ours.Work(ctx, w.Spec, w.Plan)
	},
	measure.RoleRoute: func(ctx context.Context, spec []byte, _ io.Writer) error {
		var s ours.Spec
		if err := json.Unmarshal(spec, &s); err != nil {
			return err
		}
		return ours.Route(ctx, s)
	},
	measure.RoleLoad: func(ctx context.Context, spec []byte, out io.Writer) error {
		var a measure.Asked
		if err := json.Unmarshal(spec, &a); err != nil {
			return err
		}
		seen, err := a.Do(ctx)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(seen); err != nil {
			return err
		}
		if a.Kind == measure.Hold {
			<-ctx.Done() // the streams stay open
		}
		return nil
	},
}

// serve runs the workers that speak HTTP until ctx ends.
func serve(ctx context.Context, w measure.Workers) error {
	mock.ShareProcessors()
	broken := make(chan error, len(w.Ports))
	for _, port := range w.Ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		s := &http.Server{Handler: mock.HTTP(w.Plan), ReadHeaderTimeout: time.Minute}
		defer s.Close() //nolint:errcheck // nothing is left to lose
		go func() { broken <- s.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		return err
	}
}
