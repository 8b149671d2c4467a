package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// namespace is made for the bench and removed in the end.
const namespace = "bench-cold-start"

// rig is what every repetition needs.
type rig struct {
	*cluster.Cluster
	model *v1alpha1.InferenceModel
	url   string
	creds credentials.TransportCredentials
	http  *http.Client
}

func measure(ctx context.Context, c *cluster.Cluster, out io.Writer) (f []bench.Figure, err error) {
	if err := c.Namespace(ctx, namespace); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), namespace)) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r := &rig{Cluster: c, model: cluster.Model(namespace, "cold"), http: &http.Client{Transport: transport}}
	fresh, err := r.fresh(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "a new model answers %.2f s after it was applied\n", fresh.Seconds())
	dir, err := os.MkdirTemp("", "ringfleet-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	creds, end, err := c.Credentials(ctx, namespace, v1alpha1.SecretRouterTLS, dir)
	if err != nil {
		return nil, err
	}
	defer end()
	r.creds = creds
	var all []repetition
	for n := range repetitions {
		one, err := r.repeat(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("repetition %d of %d: %w", n+1, repetitions, err)
		}
		fmt.Fprintf(out, "%d of %d: in the ring %.2f s after the loss, first token %.2f s after the process began\n",
			n+1, repetitions, one.inRing.Sub(one.deleted).Seconds(), one.token.Sub(one.began).Seconds())
		all = append(all, one)
	}
	return append(figures(all), bench.Plain("a new namespace's model applied → first token, routers and all, once", fresh.Seconds(), "s")), nil
}

// fresh applies the model and asks until it answers.
func (r *rig) fresh(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	if err := r.API.Create(ctx, r.model); err != nil {
		return 0, fmt.Errorf("create model %s: %w", r.model.Name, err)
	}
	var err error
	if r.url, err = r.URL(ctx, namespace); err != nil {
		return 0, err
	}
	c, stop := r.asking(ctx, "fresh")
	defer stop()
	if err := answers(ctx, c, begun); err != nil {
		return 0, err
	}
	return c.earliest().Sub(begun), nil
}

// asking starts a client; it has ended when stop returns.
func (r *rig) asking(ctx context.Context, name string) (c *asker, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c = &asker{url: r.url, model: r.model.Name, name: name, http: r.http}
	ended := make(chan struct{})
	go func() { defer close(ended); c.ask(ctx) }()
	return c, func() { cancel(); <-ended }
}

func answers(ctx context.Context, c *asker, since time.Time) error {
	_, err := cluster.Until(ctx, "a client of the router is answered", func(context.Context) (bool, string, error) {
		done, saw := c.since(since)
		return done, saw, nil
	})
	return err
}

// repeat deletes the only worker by force and watches its successor.
func (r *rig) repeat(ctx context.Context, n int) (one repetition, err error) {
	if err := r.UntilReady(ctx, r.model); err != nil {
		return one, err
	}
	pods, err := r.Workers(ctx, r.model)
	if err != nil {
		return one, err
	}
	if len(pods) != 1 {
		return one, fmt.Errorf("model %s has %d workers, not one", r.model.Name, len(pods))
	}
	watching, cancel := context.WithCancel(ctx)
	w, end, err := watchWorkers(watching, r.Cluster, r.model)
	if err != nil {
		cancel()
		return one, err
	}
	defer func() { cancel(); err = errors.Join(err, end()) }()
	before, err := cluster.PIDs()
	if err != nil {
		return one, err
	}
	c, stop := r.asking(ctx, fmt.Sprint("bench-", n))
	defer stop()
	one.deleted = time.Now()
	if err := r.API.Delete(ctx, &pods[0], kube.GracePeriodSeconds(0)); err != nil {
		return one, fmt.Errorf("delete worker %s: %w", pods[0].Name, err)
	}
	uid, err := next(ctx, w)
	if err != nil {
		return one, err
	}
	d, err := straight(ctx, string(uid), fmt.Sprint("straight-", n), before, r.creds)
	if err != nil {
		return one, err
	}
	one.began, one.token = d.began, d.token
	return r.follow(ctx, one, w, uid, c)
}

// next waits for the successor.
func next(ctx context.Context, w *watcher) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Hangs)
	defer cancel()
	select {
	case uid := <-w.added:
		return uid, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no successor was created: %w", ctx.Err())
	}
}

// follow waits until the successor is in the ring and has answered the client, and reads its log.
func (r *rig) follow(ctx context.Context, one repetition, w *watcher, uid types.UID, c *asker) (repetition, error) {
	var s sight
	_, err := cluster.Until(ctx, "the successor is in the ring", func(context.Context) (bool, string, error) {
		s = w.get(uid)
		return !s.inRing.IsZero(), fmt.Sprintf("%+v", s), nil
	})
	if err != nil {
		return one, err
	}
	if err := answers(ctx, c, s.inRing); err != nil {
		return one, err
	}
	one.created, one.scheduled, one.inRing = s.created, s.scheduled, s.inRing
	_, err = cluster.Until(ctx, "the record of the successor and the events of its images are whole", func(ctx context.Context) (bool, string, error) {
		log, err := r.Logs(ctx, namespace, s.name)
		if err != nil {
			return false, "", err
		}
		rec := read(log)
		if one.began.After(rec.starts) && !rec.starts.IsZero() {
			one.began = rec.starts
		}
		one.loaded, one.pulled = rec.loaded, w.get(uid).pulled
		one.answered, one.refused = c.first(rec.served)
		why := one.lacks()
		return why == nil, fmt.Sprint(why), nil
	})
	return one, err
}
