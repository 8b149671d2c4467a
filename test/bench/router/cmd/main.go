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
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/router/measure"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
	"github.com/ringfleet/ringfleet/test/bench/router/ours"
	"github.com/ringfleet/ringfleet/test/bench/router/peers"
	"github.com/ringfleet/ringfleet/test/bench/tables"
)

// options are the flags.
type options struct {
	command.Flags
	turns    int
	peers    string
	profiles string
}

func (o *options) bind(f *flag.FlagSet) {
	o.Bind(f, "measures, separated by commas: "+strings.Join(measure.Names(), ", "), "one turn", page, time.Hour)
	f.IntVar(&o.turns, "turns", wholeTurns, "how often each router takes its turn")
	f.StringVar(&o.peers, "peers", strings.Join(peers.Names(), ","), "the routers to measure beside; empty for none")
	f.StringVar(&o.profiles, "profiles", "", "a folder for CPU profiles of Ringfleet's router, which cost it a little")
}

// page is the page of docs that has the tables.
const page = "benchmarks.md"

func main() { os.Exit(program.Run("bench-router", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	if played, err := roles.Play(ctx, args, out); played {
		return err
	}
	var o options
	f := flag.NewFlagSet("bench-router", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.Quick {
		o.turns = 1
	}
	switch {
	case o.turns < 1:
		return fmt.Errorf("--turns %d: want 1 or more", o.turns)
	case o.Update && o.part():
		return fmt.Errorf("--update: the documentation has whole runs of %d turns only, without profiles", wholeTurns)
	}
	return o.Within(ctx, func(ctx context.Context, root, dir string) error { return o.measure(ctx, root, dir, out) })
}

// wholeTurns is how often each router takes its turn in a whole run.
const wholeTurns = 7

// part says that this is no whole run, or one whose profiles cost the router something.
func (o options) part() bool { return o.Only != "" || o.turns < wholeTurns || o.profiles != "" }

// measure runs the bench and writes what came of it.
func (o options) measure(ctx context.Context, root, dir string, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h, _, err := tables.Here(command.File("router", o.part()), "The router beside its peers")
	if err != nil {
		return err
	}
	present, absent := peers.Present(command.Names(o.peers))
	for _, p := range absent {
		fmt.Fprintf(out, "%s is not installed: left out\n", p)
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	rig := &measure.Rig{Dir: dir, Root: root, Program: self, Profiles: o.profiles, Out: out, Peers: present}
	for _, p := range rig.Peers {
		h.Versions[p] = peers.Version(p)
	}
	rows, bad := rig.Run(ctx, o.turns, command.Names(o.Only))
	if len(rows) == 0 {
		return bad
	}
	r := tables.Of(h, intro(h), rows, page)
	fmt.Fprintln(out, "\n"+r.Text)
	return errors.Join(bad, r.Keep(root, o.Update && bad == nil))
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
var roles = command.Roles{
	measure.RoleHTTP:  command.As(func(ctx context.Context, w measure.Workers, _ io.Writer) error { return serve(ctx, w) }),
	measure.RoleGRPC:  command.As(func(ctx context.Context, w measure.Workers, _ io.Writer) error { return ours.Work(ctx, w.Spec, w.Plan) }),
	measure.RoleRoute: command.As(func(ctx context.Context, s ours.Spec, _ io.Writer) error { return ours.Route(ctx, s) }),
	measure.RoleLoad:  command.As(ask),
}

// ask asks, says what came of it, and holds streams open that are to be held.
func ask(ctx context.Context, a measure.Asked, out io.Writer) error {
	seen, err := a.Do(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(seen); err != nil {
		return err
	}
	if a.Kind == measure.Hold {
		<-ctx.Done()
	}
	return nil
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
