// Command manifests copies the generated CRDs and roles to where people install them from: the chart's
// templates and the kustomize tree. It runs after controller-gen, in `make manifests`.
package main

import (
	"fmt"
	"os"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/manifests/render"
)

func main() {
	root, err := repo.Root(".")
	if err == nil {
		err = render.All(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}
