package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/server"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
)

// The roles that this program plays as a child of itself.
const (
	roleRoute  = "route"
	roleEngine = "engine"
)

// Roles are what a program that uses a rig must do when its first argument is a role, and its second what it is told.
var Roles = command.Roles{
	roleRoute:  command.As(func(ctx context.Context, s routeSpec, _ io.Writer) error { return route(ctx, s) }),
	roleEngine: command.As(func(ctx context.Context, s engine.Spec, _ io.Writer) error { return engine.Serve(ctx, s) }),
}

// routeSpec is what a router is started with.
type routeSpec struct {
	Keys                     string
	Name                     string
	HTTP, GRPC, Ops, Control int
	State                    discovery.State
	Settle, Drain            time.Duration
	MaxConnections           int
}

// told is what a router hears of the cluster: the state that it was started with, and every one that it is told after that.
type told struct {
	first discovery.State
	next  chan news
}

// news is another state; done is closed when the router has taken it.
type news struct {
	state discovery.State
	done  chan struct{}
}

// Run implements server.Source.
func (t *told) Run(ctx context.Context, tell func(discovery.State)) error {
	if t.first.Synced {
		tell(t.first)
	}
	for {
		select {
		case n := <-t.next:
			tell(n.state)
			close(n.done)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serve hears of other states until ctx ends.
func (t *told) serve(ctx context.Context, port int) error {
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		return fmt.Errorf("listen for states: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /state", func(w http.ResponseWriter, r *http.Request) {
		n := news{done: make(chan struct{})}
		if err := json.NewDecoder(r.Body).Decode(&n.state); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case t.next <- n:
			<-n.done
		case <-r.Context().Done():
		}
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }() // it ends with the process
	return nil
}

// route runs a router until ctx ends.
func route(ctx context.Context, s routeSpec) error {
	from := &told{first: s.State, next: make(chan news)}
	if err := from.serve(ctx, s.Control); err != nil {
		return err
	}
	o := server.Defaults()
	o.Namespace, o.PodName, o.TLSDir = Namespace, s.Name, filepath.Join(s.Keys, "router")
	o.HTTPAddress, o.GRPCAddress, o.OpsAddress = local(s.HTTP), local(s.GRPC), local(s.Ops)
	o.DrainSettle, o.DrainTimeout = s.Settle, s.Drain
	if s.MaxConnections > 0 {
		o.MaxConnections = s.MaxConnections
	}
	return server.RunFrom(ctx, o, from)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
