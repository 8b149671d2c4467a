// Package command is the command line of the image tool: flags, and which package does what. It decides
// nothing about what an image holds.
package command

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
)

// New makes the root command. Results go to out, progress to errOut.
func New(out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "image",
		Short: "Container images of this repository, built without a container engine",
		Long: "image writes OCI archives that containerd imports (ctr images import) and Docker loads, and fetches the\n" +
			"libraries of llama.cpp, what they need for NVIDIA's GPUs and the demo model into the user's cache.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(errOut)
	root.AddCommand(images(), model(), libs(), cuda(), weights())
	return root
}

func libs() *cobra.Command {
	return &cobra.Command{
		Use: "libs", Short: "Fetch the libraries of llama.cpp and print their folder", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := fetch.Libraries()
			if err != nil {
				return err
			}
			return printFetched(cmd, p, "")
		},
	}
}

func cuda() *cobra.Command {
	return &cobra.Command{
		Use: "cuda", Short: "Fetch llama.cpp's part for CUDA and NVIDIA's libraries for it, and print their folders", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range append(fetch.CUDA(), fetch.LlamaCUDA()) {
				if err := printFetched(cmd, p, ""); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func weights() *cobra.Command {
	return &cobra.Command{
		Use: "weights", Short: "Fetch the demo model and print the path of its file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printFetched(cmd, fetch.Weights(), fetch.WeightsFile)
		},
	}
}

// printFetched prints the path of file in the folder of p.
func printFetched(cmd *cobra.Command, p fetch.Package, file string) error {
	cache, err := fetch.New(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	dir, err := cache.Get(cmd.Context(), p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(dir, file))
	return err
}
