// Package cluster reaches a real cluster with the chart installed, as the tests and benches on one need it: its API
// server, its models, and the processes of its pods, which are visible on this machine because its nodes are namespaces
// of it. It waits and reads; what must hold is the callers' to say.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Hangs is how long anything may take before it counts as never.
const Hangs = 60 * time.Second

// every is how often Until looks.
const every = 50 * time.Millisecond

// Cluster is one cluster.
type Cluster struct {
	API  client.WithWatch
	Kube kubernetes.Interface // for logs
}

// Connect reaches the cluster that KUBECONFIG names.
func Connect() (*Cluster, error) {
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		return nil, errors.New("KUBECONFIG is not set: run go run ./hack/demo with -- COMMAND, which makes a cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	return &Cluster{API: api, Kube: kube}, err
}

// Until looks again and again until look says true. It returns how long that took, and what look saw last as an error
// when it hangs.
func Until(ctx context.Context, what string, look func(context.Context) (done bool, saw string, err error)) (time.Duration, error) {
	start := time.Now()
	last := ""
	err := wait.PollUntilContextTimeout(ctx, every, Hangs, true, func(ctx context.Context) (bool, error) {
		done, saw, err := look(ctx)
		last = saw
		return done, err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w; last seen: %s", what, err, last)
	}
	return time.Since(start), nil
}

// Logs returns what a pod's container has written.
func (c *Cluster) Logs(ctx context.Context, namespace, pod string) (string, error) {
	stream, err := c.Kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read the logs of %s: %w", pod, err)
	}
	defer stream.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, stream); err != nil {
		return "", fmt.Errorf("read the logs of %s: %w", pod, err)
	}
	return b.String(), nil
}
