package ours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/server"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
)

// Spec is where router and workers are, and where their certificates.
type Spec struct {
	Keys  string `json:"keys"`
	HTTP  int    `json:"http"`
	GRPC  int    `json:"grpc"`
	Ops   int    `json:"ops"`
	Ports []int  `json:"ports"` // of the workers
	// Profile is the file that a CPU profile of the router goes into, if any.
	Profile string `json:"profile,omitempty"`
}

// fixed tells one state of the cluster.
type fixed struct{ state discovery.State }

// Run implements server.Source.
func (f fixed) Run(ctx context.Context, tell func(discovery.State)) error {
	tell(f.state)
	<-ctx.Done()
	return ctx.Err()
}

// pod is the name of a worker.
func pod(i int) string { return "worker-" + strconv.Itoa(i) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Route runs the router until ctx ends.
func Route(ctx context.Context, s Spec) (err error) {
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	m := discovery.Model{UID: mock.ModelUID, Object: mock.Model, Name: mock.Model, ServedNames: []string{mock.Model}, Created: time.Unix(1_700_000_000, 0)}
	for i, port := range s.Ports {
		m.Candidates = append(m.Candidates, discovery.Candidate{PodName: pod(i), Address: address(port)})
	}
	o := server.Defaults()
	o.Namespace, o.PodName, o.TLSDir = Namespace, "router-0", filepath.Join(s.Keys, "router")
	o.HTTPAddress, o.GRPCAddress, o.OpsAddress = address(s.HTTP), address(s.GRPC), address(s.Ops)
	return server.RunFrom(ctx, o, fixed{discovery.State{Synced: true, Models: []discovery.Model{m}, Settings: discovery.DefaultSettings()}})
}

// Work runs the workers that speak gRPC until ctx ends.
func Work(ctx context.Context, s Spec, p mock.Plan) error {
	mock.ShareProcessors()
	files, err := identity.Files(filepath.Join(s.Keys, "worker"))
	if err != nil {
		return err
	}
	defer files.Close()
	creds, err := identity.ServerCredentials(files, identity.In(Namespace, identity.Router))
	if err != nil {
		return err
	}
	broken := make(chan error, len(s.Ports))
	for i, port := range s.Ports {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			return fmt.Errorf("listen as worker %d: %w", i, err)
		}
		g := grpc.NewServer(mock.Options(creds)...)
		workerv1.RegisterWorkerServer(g, &mock.GRPC{Pod: pod(i), Plan: p})
		defer g.Stop()
		go func() { broken <- g.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		return err
	}
}
