// Package chart holds what the chart and the kustomize tree install against what they promise: every value
// does something, an unknown one is refused, and pods run under Pod Security restricted. It renders, and
// installs nothing.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Helm is the helm of this repository's tools.
type Helm struct {
	root, program string
}

// NewHelm finds helm for the repository at root, and builds it where it was never built.
func NewHelm(ctx context.Context, root string) (*Helm, error) {
	c := exec.CommandContext(ctx, "go", "tool", "-n", "-modfile=hack/tools.mod", "helm")
	c.Dir = root
	var stderr bytes.Buffer
	c.Stderr = &stderr
	path, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("build helm: %w: %s", err, stderr.Bytes())
	}
	return &Helm{root: root, program: strings.TrimSpace(string(path))}, nil
}

// Run runs helm with args in the repository.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, h.program, args...)
	c.Dir = h.root
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}

// Template renders the chart as release ringfleet in namespace ringfleet-system.
func (h *Helm) Template(ctx context.Context, args ...string) (string, error) {
	return h.Run(ctx, append([]string{"template", "ringfleet", filepath.Join("charts", "ringfleet"), "--namespace", "ringfleet-system"}, args...)...)
}

// Objects are rendered objects by "Kind name".
type Objects map[string]*unstructured.Unstructured

// Parse reads manifests. Two objects of one kind and name are an error.
func Parse(manifests string) (Objects, error) {
	out := Objects{}
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("read rendered manifests: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		key := o.GetKind() + " " + o.GetName()
		if out[key] != nil {
			return nil, fmt.Errorf("read rendered manifests: %s stands twice", key)
		}
		out[key] = o
	}
}
