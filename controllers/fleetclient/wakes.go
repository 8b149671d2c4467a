package fleetclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
)

// Wakes tells the UID of each model of a namespace that requests wait for because it has no worker: each at once, and
// each second as long as they wait. It holds a stream to every Ready router, looks for new ones and for broken streams at
// each tick of again, and returns when ctx or the client ends. tell may be called from several goroutines at once.
func (c *Client) Wakes(ctx context.Context, name string, again <-chan time.Time, tell func(modelUID string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	w := wakes{client: c, name: name, tell: tell, open: map[string]bool{}}
	defer w.streams.Wait()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wakes are the streams of one namespace.
type wakes struct {
	client *Client
	name   string
	tell   func(modelUID string)

	streams sync.WaitGroup
	mu      sync.Mutex      // guards open; never held during a call
	open    map[string]bool // by pod UID
}

// look opens a stream to every Ready router that has none.
func (w *wakes) look(ctx context.Context) error {
	pods, err := w.client.find(ctx, w.name)
	if err != nil {
		return fmt.Errorf("find the routers of namespace %s: %w", w.name, err)
	}
	for _, pod := range pods.Routers {
		w.mu.Lock()
		there := w.open[pod.UID]
		w.open[pod.UID] = true
		w.mu.Unlock()
		if there {
			continue
		}
		w.streams.Go(func() {
			w.listen(ctx, pod)
			w.mu.Lock()
			delete(w.open, pod.UID)
			w.mu.Unlock()
		})
	}
	return nil
}

// listen tells what one router says until its stream ends. A router that can't be reached is tried again at the next look.
func (w *wakes) listen(ctx context.Context, pod Pod) {
	w.client.mu.Lock()
	n, err := w.client.namespace(w.name)
	w.client.mu.Unlock()
	if err != nil {
		return
	}
	cc, err := n.conn(pod)
	if err != nil {
		return
	}
	stream, err := routerv1.NewRouterClient(cc).WatchWakes(ctx, &routerv1.WatchWakesRequest{})
	for err == nil {
		var wake *routerv1.Wake
		if wake, err = stream.Recv(); err == nil {
			w.tell(wake.GetModelUid())
		}
	}
}
