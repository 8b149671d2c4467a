package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// Programs are the folders and files that a cluster runs from.
type Programs struct {
	Kube, Containerd, CoreDNS string // folders
	Pause                     string // image archive
}

// readyWait bounds each wait for the control plane.
const readyWait = 3 * time.Minute

// sayEvery is the longest silence.
const sayEvery = 15 * time.Second

// Up brings the cluster up, or what is missing of it: members that run stay as they are. It returns when the
// API answers, every node is ready, pods can be made and Services answer.
func (c *Cluster) Up(ctx context.Context, p Programs, images []string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.dropGone(); err != nil {
		return err
	}
	began := c.Clock.Now()
	if err := c.settle(); err != nil {
		return err
	}
	k, err := c.loadKeys()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.file(imagesDir), 0o755); err != nil {
		return err
	}
	if err := c.dropStrays(); err != nil {
		return err
	}
	if _, err := c.remember(p.Pause); err != nil {
		return err
	}
	if err := c.loadImages(ctx, images); err != nil { // into the nodes that run; the others import at their start
		return err
	}
	if err := c.startMembers(ctx, k, p); err != nil {
		return c.explain(err)
	}
	if err := c.awaitReady(ctx, began); err != nil {
		return c.explain(err)
	}
	c.say("cluster %s is up after %.1f s", c.Settings.Name, c.Clock.Since(began).Seconds())
	return nil
}

// settle stores the settings, after checking them against an existing cluster and the host's routes.
func (c *Cluster) settle() error {
	old, ok, err := c.stored()
	if err != nil {
		return err
	}
	if ok {
		c.Settings = c.Settings.Keeping(old)
		if err := c.Settings.Extends(old); err != nil {
			return err
		}
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return fmt.Errorf("read the host's routes: %w", err)
	}
	if err := c.Settings.Clash(string(routes)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c.Settings, "", "  ")
	if err != nil {
		return err
	}
	return write(c.file(settingsFile), append(text, '\n'))
}

// startMembers starts the members that do not run: the hub first, since it holds the network.
func (c *Cluster) startMembers(ctx context.Context, k keys, p Programs) error {
	m, err := machine()
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range c.Settings.Members() {
		dir := member.Dir(c.Settings, name)
		up, err := member.Started(dir)
		if err != nil {
			return err
		}
		if up {
			continue
		}
		if err := member.Kill(ctx, dir); err != nil { // half a start of an interrupted predecessor
			return err
		}
		if err := c.configure(name, k, m); err != nil {
			return err
		}
		missing = append(missing, name)
	}
	g, gctx := errgroup.WithContext(ctx)
	if len(missing) > 0 && missing[0] == config.Hub {
		wait, err := c.start(ctx, config.Hub, p) // the nodes need its network, not yet its API
		if err != nil {
			return err
		}
		g.Go(func() error { return wait(gctx) })
		missing = missing[1:]
	}
	for _, name := range missing {
		g.Go(func() error {
			wait, err := c.start(gctx, name, p)
			if err != nil {
				return err
			}
			return wait(gctx)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return member.Route(ctx, c.Settings, c.Settings.Nodes[0])
}

// start starts a member; wait returns when its components were started.
func (c *Cluster) start(ctx context.Context, name string, p Programs) (wait func(context.Context) error, err error) {
	began := c.Clock.Now()
	spec := member.Spec{Name: name, Hub: name == config.Hub, Dir: member.Dir(c.Settings, name),
		Kube: p.Kube, Containerd: p.Containerd, CoreDNS: p.CoreDNS, Images: c.file(imagesDir), Cgroup: c.Settings.Cgroup,
		Components: c.Settings.Components(name)}
	running, err := member.Start(ctx, c.Settings, spec)
	if err != nil {
		return nil, &memberError{member: name, err: err}
	}
	return func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { done <- running(ctx) }()
		if err := c.watch(spec.Dir, name, done); err != nil {
			return &memberError{member: name, err: err}
		}
		c.say("%s (%s) started in %.1f s", name, c.Settings.IP(name), c.Clock.Since(began).Seconds())
		return nil
	}, nil
}

// watch waits for the end of a start, and says every so often what it waits for.
func (c *Cluster) watch(dir, name string, done <-chan error) error {
	tick := c.Clock.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C():
			st, err := member.ReadStatus(dir)
			if err != nil {
				return err
			}
			c.say("%s: still starting, waiting for %s", name, st.Waiting)
		}
	}
}

// awaitReady waits for all that a user needs before the first kubectl apply.
func (c *Cluster) awaitReady(ctx context.Context, began time.Time) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	get := func(path string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := api.Get(ctx, path); return err }
	}
	type wait struct {
		what, member string
		done         func(context.Context) error
	}
	waits := []wait{{"the API server is ready", config.Hub, get("/readyz")}}
	for _, n := range c.Settings.Nodes {
		waits = append(waits, wait{"node " + n + " is ready", n, func(ctx context.Context) error {
			ready, err := api.NodesReady(ctx)
			if err == nil && !ready[n] {
				err = fmt.Errorf("node %s is not ready", n)
			}
			return err
		}})
	}
	waits = append(waits,
		wait{"pods can be made (service account default)", config.Hub, get("/api/v1/namespaces/default/serviceaccounts/default")},
		wait{"Services answer on the host", c.Settings.Nodes[0], func(ctx context.Context) error {
			d := net.Dialer{Timeout: 200 * time.Millisecond} // a Service without rules yet swallows the packet
			conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(c.Settings.APIService().String(), "443"))
			if err != nil {
				return err
			}
			return conn.Close()
		}},
		wait{"names of Services resolve", config.Hub, c.resolves})
	for _, w := range waits {
		if err := c.await(ctx, w.member, w.done); err != nil {
			return &memberError{member: w.member, err: fmt.Errorf("wait until %s: %w", w.what, err)}
		}
		c.say("%s after %.1f s", w.what, c.Clock.Since(began).Seconds())
	}
	return nil
}

// resolves asks the cluster's DNS server for a Service.
func (c *Cluster) resolves(ctx context.Context) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 200 * time.Millisecond}
		return d.DialContext(ctx, network, net.JoinHostPort(c.Settings.HubIP().String(), "53"))
	}}
	_, err := r.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	return err
}

// await asks until done agrees; the error at the end is the last one that done gave, or that a component of
// the member ends again and again.
func (c *Cluster) await(ctx context.Context, name string, done func(context.Context) error) error {
	first, err := member.ReadStatus(member.Dir(c.Settings, name))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := c.Clock.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	said := c.Clock.Now()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		now, readErr := member.ReadStatus(member.Dir(c.Settings, name))
		if bad := errors.Join(readErr, member.Hopeless(now, first)); bad != nil {
			return bad
		}
		if c.Clock.Since(said) > sayEvery {
			said = c.Clock.Now()
			c.say("still waiting: %v", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C():
		}
	}
}

// programsOf are those that a member ran from before; a restart takes the same.
func (c *Cluster) programsOf(name string) (Programs, error) {
	spec, err := member.ReadSpec(member.Dir(c.Settings, name))
	if err != nil {
		return Programs{}, fmt.Errorf("read how %s was started: %w; run up", name, err)
	}
	for _, dir := range []string{spec.Kube, spec.Containerd, spec.CoreDNS} {
		if _, err := os.Stat(filepath.Clean(dir)); err != nil {
			return Programs{}, fmt.Errorf("start %s again: its programs are gone: %w; run up", name, err)
		}
	}
	return Programs{Kube: spec.Kube, Containerd: spec.Containerd, CoreDNS: spec.CoreDNS}, nil
}
