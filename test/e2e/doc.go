// Package e2e tests the whole line on a real cluster: kubelets, images, a model, and clients that see what users see.
// Its tests (build tag e2e) need KUBECONFIG to point at a cluster with the chart installed and the demo's images loaded,
// as `go run ./hack/demo e2e` makes one. They assert order and counts; times are written to bench/out.
package e2e
