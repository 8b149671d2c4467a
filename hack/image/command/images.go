package command

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringfleet/ringfleet/hack/image/build"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/repo"
)

func images() *cobra.Command {
	var dir string
	targets := slices.Concat(build.Targets(), build.OnDemand(), []string{all})
	c := &cobra.Command{
		Use:   "build [" + strings.Join(targets, "|") + "]...",
		Short: "Build image archives and print their paths",
		Long: "build writes one archive for each image that is named, and for all but " + strings.Join(build.OnDemand(), ", ") +
			" where none is.\n\n" + build.WorkerCUDA + " is the worker for NVIDIA's GPUs. For it some 550 MB are fetched, once: llama.cpp's part\n" +
			"for CUDA, and NVIDIA's CUDA runtime and cuBLAS, which are under NVIDIA's license (the CUDA Toolkit EULA).\n" +
			"The driver's own libraries stay out: NVIDIA's container runtime adds the node's.",
		ValidArgs: targets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return buildAll(cmd, dir, chosen(args))
		},
	}
	output(c, &dir)
	return c
}

// all stands for the targets that are built where none is named. One that is named beside it is built too.
const all = "all"

func chosen(args []string) []string {
	if len(args) > 0 && !slices.Contains(args, all) {
		return args
	}
	targets := build.Targets()
	for _, a := range args {
		if a != all && !slices.Contains(targets, a) {
			targets = append(targets, a)
		}
	}
	return targets
}

func model() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "model", Short: "Build the image archive of the demo model and print its path", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return buildAll(cmd, dir, []string{build.Model}) },
	}
	output(c, &dir)
	return c
}

func output(c *cobra.Command, dir *string) {
	c.Flags().StringVarP(dir, "output", "o", "", "folder of the archives (default bin/images of the repository)")
}

func buildAll(cmd *cobra.Command, dir string, targets []string) error {
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	version, err := repo.Version(root)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(root, "bin", "images")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	cache, err := fetch.New(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	b := &build.Builder{Root: root, Version: version, Dir: dir, Cache: cache, Out: cmd.ErrOrStderr()}
	for _, t := range targets {
		r, err := b.Build(cmd.Context(), t)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), r.File); err != nil {
			return err
		}
	}
	return nil
}
