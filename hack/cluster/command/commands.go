package command

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ringfleet/ringfleet/hack/cluster/build"
	"github.com/ringfleet/ringfleet/hack/cluster/lifecycle"
)

func (t *tool) up() *cobra.Command {
	var images []string
	c := &cobra.Command{Use: "up", Args: cobra.NoArgs,
		Short: "Bring the cluster up, or what is missing of it",
		Long: "up builds what is missing in the cache, starts the members that do not run and waits until nodes are ready,\n" +
			"pods can be made and Services answer. More names in --nodes add nodes to a cluster that runs.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := t.engine()
			if err != nil {
				return err
			}
			if err := e.Up(cmd.Context(), images); err != nil {
				return err
			}
			file, err := e.KubeconfigFile(cmd.Context())
			if err == nil {
				_, err = fmt.Fprintf(t.out, "export KUBECONFIG=%s\n", file)
			}
			return err
		}}
	c.Flags().StringArrayVar(&images, "image", nil, "image archive to load (may be repeated)")
	return c
}

func (t *tool) down() *cobra.Command {
	return &cobra.Command{Use: "down", Args: cobra.NoArgs,
		Short: "End the cluster and remove all that it made, but for the cache of programs",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := t.engine()
			if err != nil {
				return err
			}
			return e.Down(cmd.Context())
		}}
}

func (t *tool) load() *cobra.Command {
	return &cobra.Command{Use: "load ARCHIVE...", Args: cobra.MinimumNArgs(1),
		Short: "Load image archives (OCI or docker save) into every node, now and later",
		RunE: func(cmd *cobra.Command, archives []string) error {
			e, err := t.engine()
			if err != nil {
				return err
			}
			return e.LoadImages(cmd.Context(), archives)
		}}
}

func (t *tool) kubeconfig() *cobra.Command {
	var content bool
	c := &cobra.Command{Use: "kubeconfig", Args: cobra.NoArgs,
		Short: "Print the path of the cluster's kubeconfig",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := t.engine()
			if err != nil {
				return err
			}
			file, err := e.KubeconfigFile(cmd.Context())
			if err != nil {
				return err
			}
			text := []byte(file + "\n")
			if content {
				if text, err = os.ReadFile(file); err != nil {
					return err
				}
			}
			_, err = t.out.Write(text)
			return err
		}}
	c.Flags().BoolVar(&content, "content", false, "print the file itself")
	return c
}

func (t *tool) status() *cobra.Command {
	return &cobra.Command{Use: "status", Args: cobra.NoArgs,
		Short: "Show members, processes, nodes and addresses",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(t.out, func(c *lifecycle.Cluster) error { return c.Status(cmd.Context()) })
		}}
}

func (t *tool) build() *cobra.Command {
	return &cobra.Command{Use: "build", Args: cobra.NoArgs,
		Short: "Build the cluster's programs into the cache, where they are missing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := t.programs(cmd.Context())
			if err == nil {
				_, err = fmt.Fprintf(t.out, "%s\n%s\n%s\n%s\n", p.Kube, p.Containerd, p.CoreDNS, p.Pause)
			}
			return err
		}}
}

func (t *tool) assets() *cobra.Command {
	return &cobra.Command{Use: "assets", Args: cobra.NoArgs,
		Short: "Print the folder for KUBEBUILDER_ASSETS (kube-apiserver, etcd, kubectl), built when missing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := t.builder()
			if err != nil {
				return err
			}
			dir, err := b.Ensure(cmd.Context(), build.Kube())
			if err == nil {
				_, err = fmt.Fprintln(t.out, dir)
			}
			return err
		}}
}

func (t *tool) node() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Lose a node, cut it off, and bring it back"}
	one := func(use, short string, do func(*cobra.Command, *lifecycle.Cluster, string) error) {
		c.AddCommand(&cobra.Command{Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return t.asRoot(func(c *lifecycle.Cluster) error { return do(cmd, c, args[0]) })
			}})
	}
	one("kill", "Lose a member at once (hub: the control plane)", func(cmd *cobra.Command, c *lifecycle.Cluster, n string) error {
		return c.Kill(cmd.Context(), n)
	})
	one("restart", "Start a member again; one that runs is killed before", func(cmd *cobra.Command, c *lifecycle.Cluster, n string) error {
		return c.Restart(cmd.Context(), n)
	})
	one("partition", "Cut a node off; its containers run on", func(cmd *cobra.Command, c *lifecycle.Cluster, n string) error {
		return c.SetPartition(cmd.Context(), n, true)
	})
	one("heal", "Join a node again that was cut off", func(cmd *cobra.Command, c *lifecycle.Cluster, n string) error {
		return c.SetPartition(cmd.Context(), n, false)
	})
	one("via", "Lead the host's traffic to Services through this node", func(cmd *cobra.Command, c *lifecycle.Cluster, n string) error {
		return c.RouteServices(cmd.Context(), n)
	})
	return c
}

func (t *tool) exec() *cobra.Command {
	c := &cobra.Command{Use: "exec NAME COMMAND...", Args: cobra.MinimumNArgs(2),
		Short: "Run a command inside a member",
		RunE: func(_ *cobra.Command, args []string) error {
			return t.asRoot(func(c *lifecycle.Cluster) error {
				enter, err := c.EnterArgs(args[0], args[1:])
				if err != nil {
					return err
				}
				path, err := exec.LookPath(enter[0])
				if err != nil {
					return err
				}
				return syscall.Exec(path, enter, os.Environ())
			})
		}}
	c.Flags().SetInterspersed(false)
	return c
}

func (t *tool) asRoot(do func(*lifecycle.Cluster) error) error {
	if err := asRoot(); err != nil {
		return err
	}
	return t.with(t.err, do)
}

// with hands the cluster to do, whose words go to out.
func (t *tool) with(out io.Writer, do func(*lifecycle.Cluster) error) error {
	c, err := t.cluster()
	if err != nil {
		return err
	}
	c.Out = out
	return do(c)
}
