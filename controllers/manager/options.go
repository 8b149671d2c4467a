package manager

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Options are what the operator of an installation may choose.
type Options struct {
	// Version of the manager: it is logged, and the default images have it as their tag.
	Version string
	// Namespace is the manager's own: its lease and the certificate authority's Secret are there.
	Namespace string
	// CASecret names the Secret of the certificate authority.
	CASecret string
	// WorkerImage and RouterImage are used where objects name no image, WorkerCUDAImage for workers that run a model on GPUs
	// themselves.
	WorkerImage     string
	WorkerCUDAImage string
	RouterImage     string
	// PullPolicy of all images: Always, IfNotPresent or Never.
	PullPolicy string
	// RouterClusterRole is bound to routers in their own namespace. The manager must be allowed to bind it.
	RouterClusterRole string

	// MetricsAddress serves /metrics; "0" turns it off.
	MetricsAddress string
	// MetricsSecure serves it over TLS to callers that the API server knows and that may get /metrics.
	MetricsSecure bool
	// MetricsCertPath is a folder with the serving certificate; empty makes a self-signed one.
	MetricsCertPath string
	MetricsCertName string
	MetricsCertKey  string
	// EnableHTTP2 serves metrics over HTTP/2 too.
	EnableHTTP2 bool
	// ProbeAddress serves /healthz and /readyz.
	ProbeAddress string
	// LeaderElect lets one of several managers work. Without it, never run two: they would fight.
	LeaderElect bool

	// Log is how to log.
	Log zap.Options
}

// Bind adds the flags to set. Version is set before.
func (o *Options) Bind(set *flag.FlagSet) {
	set.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"The manager's own namespace, for its lease and its certificate authority. Defaults to $POD_NAMESPACE.")
	set.StringVar(&o.CASecret, "ca-secret", "ringfleet-ca", "The Secret of the certificate authority; it is made when there is none.")
	set.StringVar(&o.WorkerImage, "worker-image", "docker.io/ringfleet/worker:"+o.Version, "The image of workers whose model names none.")
	set.StringVar(&o.WorkerCUDAImage, "worker-cuda-image", "docker.io/ringfleet/worker-cuda:"+o.Version,
		"The image of workers that run llama.cpp on GPUs, where their model names none.")
	set.StringVar(&o.RouterImage, "router-image", "docker.io/ringfleet/router:"+o.Version, "The image of routers whose object names none.")
	set.StringVar(&o.PullPolicy, "image-pull-policy", string(corev1.PullIfNotPresent), "When nodes pull these images: Always, IfNotPresent or Never.")
	set.StringVar(&o.RouterClusterRole, "router-cluster-role", "ringfleet-router", "The ClusterRole that routers get in their own namespace.")
	set.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "The address of /metrics; 0 turns it off.")
	set.BoolVar(&o.MetricsSecure, "metrics-secure", true, "Serve /metrics over TLS, to callers that may get it.")
	set.StringVar(&o.MetricsCertPath, "metrics-cert-path", "", "The folder of the certificate for /metrics; empty makes a self-signed one.")
	set.StringVar(&o.MetricsCertName, "metrics-cert-name", "tls.crt", "The certificate's file in that folder.")
	set.StringVar(&o.MetricsCertKey, "metrics-cert-key", "tls.key", "The key's file in that folder.")
	set.BoolVar(&o.EnableHTTP2, "enable-http2", false, "Serve /metrics over HTTP/2 too.")
	set.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "The address of /healthz and /readyz.")
	set.BoolVar(&o.LeaderElect, "leader-elect", false, "Let one of several managers work.")
	o.Log.BindFlags(set)
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	for _, f := range []struct{ flag, value string }{
		{"namespace", o.Namespace}, {"ca-secret", o.CASecret}, {"worker-image", o.WorkerImage},
		{"worker-cuda-image", o.WorkerCUDAImage}, {"router-image", o.RouterImage}, {"router-cluster-role", o.RouterClusterRole},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s is empty: give it a value", f.flag))
		}
	}
	policies := []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	if !slices.Contains(policies, corev1.PullPolicy(o.PullPolicy)) {
		errs = append(errs, fmt.Errorf("--image-pull-policy is %q: it must be Always, IfNotPresent or Never", o.PullPolicy))
	}
	return errors.Join(errs...)
}
