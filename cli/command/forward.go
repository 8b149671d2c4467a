package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// forward opens a port-forward to a Ready router of the namespace and returns the local host:port.
func forward(ctx context.Context, k *clients) (address string, stop func(), err error) {
	pods, err := k.kube.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelRouter})
	if err != nil {
		return "", nil, fmt.Errorf("list router pods in namespace %s: %w", k.namespace, err)
	}
	pod := readyPod(pods.Items)
	if pod == "" {
		return "", nil, fmt.Errorf("none of %s in namespace %s is Ready: see kubectl ringfleet status -n %s",
			count(len(pods.Items), "router pod", "router pods"), k.namespace, k.namespace)
	}
	d, err := dialer(k, pod)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, d, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", v1alpha1.PortHTTPNumber)}, ready, nil, nil)
	if err != nil {
		cancel()
		return "", nil, err
	}
	var failed error // set before ended is closed
	go func() {
		defer close(ended)
		failed = f.ForwardPorts()
	}()
	stop = func() { cancel(); <-ended }
	wait, waited := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("no connection after 30 s"))
	defer waited()
	select {
	case <-ready:
	case <-ended:
		cancel()
		return "", nil, fmt.Errorf("forward a port to pod %s: %w", pod, failed)
	case <-wait.Done():
		stop()
		return "", nil, fmt.Errorf("forward a port to pod %s: %w", pod, context.Cause(wait))
	}
	ports, err := f.GetPorts()
	if err != nil {
		stop()
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), stop, nil
}

func readyPod(pods []corev1.Pod) string {
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return pods[i].Name
			}
		}
	}
	return ""
}

// dialer speaks WebSockets, and SPDY to servers or through proxies that don't.
func dialer(k *clients, pod string) (httpstream.Dialer, error) {
	url := k.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(k.namespace).Name(pod).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(k.config)
	if err != nil {
		return nil, err
	}
	fallback := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, k.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, fallback, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
