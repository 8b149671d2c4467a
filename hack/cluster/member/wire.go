package member

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

const linkWait = 10 * time.Second

// Dir is a member's folder of the state.
func Dir(s config.Settings, member string) string { return filepath.Join(s.State, "members", member) }

// wire gives a member that is about to start its network; pid is its init.
func wire(ctx context.Context, s config.Settings, member string, pid int) error {
	if member == config.Hub {
		return wireHub(ctx, s, pid)
	}
	hub, err := PID(Dir(s, config.Hub))
	if err != nil {
		return err
	}
	if hub == 0 {
		return fmt.Errorf("wire %s: the hub does not run; run up", member)
	}
	return wireNode(ctx, s, member, pid, hub)
}

// wireHub puts the bridge into the hub, where no packet filter of the host sees it, joins the host to it,
// and joins again the nodes that outlived an earlier hub.
func wireHub(ctx context.Context, s config.Settings, pid int) error {
	if err := ip(ctx, pid, s.HubLinks()); err != nil {
		return err
	}
	if err := dropLink(ctx, 0, s.Interface); err != nil {
		return err
	}
	if err := ip(ctx, 0, s.HostLinks(pid)); err != nil {
		return err
	}
	if err := ip(ctx, pid, config.HostJoin()); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		node, err := PID(Dir(s, n))
		if err == nil && node != 0 {
			err = wireNode(ctx, s, n, node, pid)
		}
		if err != nil {
			return err
		}
	}
	return ip(ctx, pid, s.PodRoutes(config.Hub))
}

func wireNode(ctx context.Context, s config.Settings, node string, pid, hub int) error {
	if err := dropLink(ctx, hub, config.Link(node)); err != nil {
		return err
	}
	if err := dropLink(ctx, pid, "eth0"); err != nil {
		return err
	}
	if err := ip(ctx, hub, s.NodeJoin(node, pid)); err != nil {
		return err
	}
	return ip(ctx, pid, append(s.NodeLinks(node), s.PodRoutes(node)...))
}

// dropLink removes a link that an ended member left: the kernel takes it away on its own, only later.
func dropLink(ctx context.Context, pid int, link string) error {
	return await(ctx, linkWait, "end of link "+link, func() (bool, error) {
		all, err := links(ctx, pid)
		if err != nil {
			return false, err
		}
		if _, exists := all[link]; !exists {
			return true, nil
		}
		// An error here means that the kernel was faster.
		_ = ip(ctx, pid, []string{"link del " + link})
		return false, nil
	})
}

// DropHostLink removes the host's link to the cluster, and with it every route to the cluster.
func DropHostLink(ctx context.Context, s config.Settings) error { return dropLink(ctx, 0, s.Interface) }

// Route brings the routes of host and running members up to date; the host reaches Services through node via.
func Route(ctx context.Context, s config.Settings, via string) error {
	for _, m := range s.Members() {
		pid, err := PID(Dir(s, m))
		if err == nil && pid != 0 {
			err = ip(ctx, pid, s.PodRoutes(m))
		}
		if err != nil {
			return err
		}
	}
	return ip(ctx, 0, s.HostRoutes(via))
}

// SetLink cuts a node off or heals it: the hub's end of its link goes down or up.
func SetLink(ctx context.Context, s config.Settings, node string, up bool) error {
	hub, err := PID(Dir(s, config.Hub))
	if err != nil {
		return err
	}
	if hub == 0 {
		return fmt.Errorf("switch the link of %s: the hub does not run; run up", node)
	}
	state := "down"
	if up {
		state = "up"
	}
	return ip(ctx, hub, []string{"link set " + config.Link(node) + " " + state})
}

// LinkUp says whether a node's link is switched on.
func LinkUp(ctx context.Context, s config.Settings, node string) (bool, error) {
	hub, err := PID(Dir(s, config.Hub))
	if err != nil || hub == 0 {
		return false, err
	}
	all, err := links(ctx, hub)
	return all[config.Link(node)], err
}
