package lifecycle

import (
	"context"
	"fmt"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// Kill loses a member at once, as by a power cut: one SIGKILL of its init.
func (c *Cluster) Kill(ctx context.Context, name string) error {
	return c.change(ctx, name, func(dir string) error {
		if err := member.Kill(ctx, dir); err != nil {
			return err
		}
		if err := member.SweepCgroups(ctx, c.Settings.Cgroup, name); err != nil {
			return err
		}
		c.say("%s is gone", name)
		return nil
	})
}

// Restart starts a member again, and kills it before when it runs. Its disk is as it was.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	return c.change(ctx, name, func(dir string) error {
		p, err := c.programsOf(name)
		if err != nil {
			return err
		}
		if err := member.Kill(ctx, dir); err != nil {
			return err
		}
		wait, err := c.start(ctx, name, p)
		if err == nil {
			err = wait(ctx)
		}
		if err != nil {
			return c.explain(err)
		}
		return member.Route(ctx, c.Settings, c.Settings.Nodes[0])
	})
}

// SetPartition cuts a node off from the rest of the cluster, or heals it. Its containers run on.
func (c *Cluster) SetPartition(ctx context.Context, node string, cut bool) error {
	return c.change(ctx, node, func(string) error {
		if node == config.Hub {
			return fmt.Errorf("partition %s: only a node has a link of its own", node)
		}
		if err := member.SetLink(ctx, c.Settings, node, !cut); err != nil {
			return err
		}
		c.say("%s is %s", node, map[bool]string{true: "cut off", false: "joined"}[cut])
		return nil
	})
}

// RouteServices leads the host's traffic to Services through another node: the first one may be lost.
func (c *Cluster) RouteServices(ctx context.Context, via string) error {
	return c.change(ctx, via, func(string) error {
		if via == config.Hub {
			return fmt.Errorf("route Services through %s: the hub serves none; name a node", via)
		}
		if err := member.Route(ctx, c.Settings, via); err != nil {
			return err
		}
		c.say("the host reaches Services through %s", via)
		return nil
	})
}

// change runs do on a member of the existing cluster, while no other command works on it.
func (c *Cluster) change(ctx context.Context, name string, do func(dir string) error) error {
	if err := c.Load(); err != nil { // before the lock, which would make the folder
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.Load(); err != nil {
		return err
	}
	dir, err := c.dirOf(name)
	if err != nil {
		return err
	}
	return do(dir)
}

// EnterArgs is the command line that runs command inside a member.
func (c *Cluster) EnterArgs(name string, command []string) ([]string, error) {
	if err := c.Load(); err != nil {
		return nil, err
	}
	dir, err := c.dirOf(name)
	if err != nil {
		return nil, err
	}
	pid, err := member.PID(dir)
	if err == nil && pid == 0 {
		err = fmt.Errorf("%s does not run; start it with node restart %s", name, name)
	}
	return member.EnterArgs(pid, command), err
}
