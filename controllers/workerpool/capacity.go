package workerpool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
)

// labelProduct is the label of a node that says which GPUs it has. NVIDIA's feature discovery sets it.
const labelProduct = "nvidia.com/gpu.product"

// node is what counts of a node: its GPUs' product, and what device plugins offer there.
type node struct {
	product string
	offers  map[string]int64
}

// observeNode reads n. Resources without a domain are Kubernetes' own.
func observeNode(n *corev1.Node) node {
	seen := node{product: n.Labels[labelProduct], offers: map[string]int64{}}
	for name, quantity := range n.Status.Allocatable {
		if strings.Contains(string(name), "/") && !quantity.IsZero() {
			seen.offers[string(name)] = quantity.Value()
		}
	}
	return seen
}

// accelerators says what nodes offer a worker of pool, and what is missing there; "" when nothing is.
func accelerators(pool *v1alpha1.WorkerPool, nodes []node) (offered, missing string) {
	a := pool.Spec.Accelerator
	if a.Kind != v1alpha1.AcceleratorNvidiaGPU {
		return "", ""
	}
	among := conditions.Count(len(nodes), "matching node", "matching nodes")
	if a.Product != "" {
		have := nodes
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return n.product != a.Product })
		if len(nodes) == 0 {
			return "", fmt.Sprintf("of %s none has the label %s=%s of spec.accelerator.product: %s", among, labelProduct, a.Product, otherProducts(have))
		}
		among = conditions.Count(len(nodes), "node", "nodes") + " with " + a.Product
	}
	resource := a.ResourceName
	if resource == "" {
		resource = v1alpha1.DefaultGPUResource
	}
	sum := int64(0)
	for _, n := range nodes {
		sum += n.offers[resource]
	}
	if sum == 0 {
		return "", fmt.Sprintf("of %s none offers %s: %s", among, resource, otherResources(nodes, resource))
	}
	return fmt.Sprintf("%d %s", sum, resource), ""
}

// otherProducts says what to do where none of nodes has the product that is wanted.
func otherProducts(nodes []node) string {
	found := map[string]bool{}
	for _, n := range nodes {
		if n.product != "" {
			found[n.product] = true
		}
	}
	if len(found) == 0 {
		return "none has that label; install NVIDIA's GPU feature discovery, which sets it, or leave the product out"
	}
	return "they have " + list(found) + "; name one of these"
}

// otherResources says what to do where none of nodes offers the resource that is wanted.
func otherResources(nodes []node, wanted string) string {
	domain, _, _ := strings.Cut(wanted, "/")
	found := map[string]bool{}
	for _, n := range nodes {
		for name := range n.offers {
			if strings.HasPrefix(name, domain+"/") {
				found[name] = true
			}
		}
	}
	if len(found) == 0 {
		return "install NVIDIA's device plugin there, or look into its log"
	}
	return "they offer " + list(found) + "; name one of these in spec.accelerator.resourceName"
}

// maxListed is how many names a message lists.
const maxListed = 8

func list(names map[string]bool) string {
	sorted := slices.Sorted(maps.Keys(names))
	if more := len(sorted) - maxListed; more > 0 {
		sorted = append(sorted[:maxListed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(sorted, ", ")
}
