// Package command is the command line of the demo: which stage runs. It decides nothing about the stages.
package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringfleet/ringfleet/hack/demo/stage"
	"github.com/ringfleet/ringfleet/hack/image/repo"
)

// New makes the root command. Everything is printed to out.
func New(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "demo",
		Short: "A cluster on this machine with a model that answers",
		Long: "demo builds what is missing, brings up a cluster on this machine, installs the chart with its defaults,\n" +
			"applies " + stage.Sample + " and asks the model a question. A second run finds what the first has done.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(out)
	root.AddCommand(up(out), down(out), with(out), e2e(out), benches(out))
	return root
}

func up(out io.Writer) *cobra.Command {
	return &cobra.Command{Use: "up", Short: "Bring up everything and ask one question", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := demo(out)
			if err != nil {
				return err
			}
			return d.Up(cmd.Context())
		}}
}

func down(out io.Writer) *cobra.Command {
	return &cobra.Command{Use: "down", Short: "Remove the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := demo(out)
			if err != nil {
				return err
			}
			return d.Down(cmd.Context())
		}}
}

func with(out io.Writer) *cobra.Command {
	var keep bool
	c := &cobra.Command{Use: "with -- COMMAND [ARGUMENT]...", Args: cobra.MinimumNArgs(1),
		Short: "Run a command on a cluster of its own with the chart installed, then remove the cluster",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := demo(out, Own(os.Getenv)...)
			if err != nil {
				return err
			}
			return d.With(cmd.Context(), keep, args)
		}}
	c.Flags().BoolVar(&keep, "keep", false, "leave the cluster as it is in the end")
	return c
}

func e2e(out io.Writer) *cobra.Command {
	var keep bool
	c := &cobra.Command{Use: "e2e [FLAG OF GO TEST]...", Short: "Run test/e2e on a cluster of its own",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := demo(out, Own(os.Getenv)...)
			if err != nil {
				return err
			}
			return d.With(cmd.Context(), keep, append([]string{"go", "test", "-tags=e2e", "-v", "-count=1", "-timeout=30m", "./test/e2e/..."}, args...))
		}}
	c.Flags().BoolVar(&keep, "keep", false, "leave the cluster as it is in the end")
	return c
}

func benches(out io.Writer) *cobra.Command {
	var keep bool
	c := &cobra.Command{Use: "bench [NAME]...", Short: "Run the benches of test/bench on a cluster of its own, and print bench/out",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := demo(out, Own(os.Getenv)...)
			if err != nil {
				return err
			}
			return d.Bench(cmd.Context(), keep, args)
		}}
	c.Flags().BoolVar(&keep, "keep", false, "leave the cluster as it is in the end")
	return c
}

// Own are settings of a cluster beside the demo's, but for those that the user has set.
func Own(getenv func(string) string) []string {
	var env []string
	for _, s := range [][2]string{{"CLUSTER_NAME", "rf-e2e"}, {"CLUSTER_NET", "10.235.0.0/24"}, {"CLUSTER_PODNET", "10.236.0.0/16"}, {"CLUSTER_SVCNET", "10.237.0.0/16"}} {
		if getenv(s[0]) == "" {
			env = append(env, fmt.Sprintf("%s=%s", s[0], s[1]))
		}
	}
	return env
}

func demo(out io.Writer, env ...string) (*stage.Demo, error) {
	root, err := repo.Root(".")
	if err != nil {
		return nil, err
	}
	return stage.New(root, out, env...), nil
}
