package server

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/router/gateway"
)

// mostBodyBytes is the largest body that a worker takes: its messages have at most 16 MiB, the rest of the call included.
const mostBodyBytes = 15 << 20

// Options are the settings of a router. Each is a flag and an environment variable: --max-body-bytes is
// RINGFLEET_MAX_BODY_BYTES. The flag wins. Heartbeat, ring and timeouts are not here: they come live from the
// InferenceRouter.
type Options struct {
	// Version of the program: it is logged.
	Version string
	// Namespace is the one whose models are served, and RouterName the InferenceRouter that holds the settings.
	Namespace, RouterName string
	// PodName is what the router calls itself in answers to the manager.
	PodName string
	// HTTPAddress serves clients, GRPCAddress the manager over mutual TLS, OpsAddress probes and metrics.
	HTTPAddress, GRPCAddress, OpsAddress string
	// ClientTLSDir holds the tls.crt and tls.key that clients see; they are read again when they change. Empty serves
	// clients without TLS.
	ClientTLSDir string
	// MaxConnections is how many connections clients may have open; more of them wait to be accepted.
	MaxConnections int
	// PrefixIndexBytes bounds the memory of what is known of the workers' caches.
	PrefixIndexBytes int64
	// MaxKeptBytes bounds what is kept of all answers under way so that they can go on at another worker. Beyond it the
	// longest ones end where their worker is lost.
	MaxKeptBytes int64
	// TLSDir holds tls.crt, tls.key and ca.crt; they are read again when they change.
	TLSDir string
	// DrainSettle is how long after SIGTERM new requests are still served, while others learn that this router goes.
	DrainSettle time.Duration
	// DrainTimeout is how long after SIGTERM running requests may take. The pod's grace must be longer.
	DrainTimeout time.Duration
	// MaxBodyBytes bounds the body of a request, MaxBodyBytesTotal the memory of those of all requests that run, with the
	// inputs' copies and the answers of those for embeddings. Each other request holds its body until it ends, and a copy
	// of it on the way to a worker: the second must be well below half of the pod's memory.
	MaxBodyBytes, MaxBodyBytesTotal int64
	// OTLPEndpoint is the URL of a collector of traces; empty traces nothing. Also OTEL_EXPORTER_OTLP_ENDPOINT.
	OTLPEndpoint string
	// Kubeconfig is used instead of the pod's service account. Empty inside a cluster.
	Kubeconfig string

	bad []error // variables that could not be read
}

// Defaults are the options without any flag or variable.
func Defaults() (o Options) {
	o.bind(flag.NewFlagSet("", flag.ContinueOnError), func(string) string { return "" })
	return o
}

// Bind adds the flags to f, and takes what the environment says.
func (o *Options) Bind(f *flag.FlagSet) { o.bind(f, os.Getenv) }

func (o *Options) bind(f *flag.FlagSet, getenv func(string) string) {
	f.StringVar(&o.Namespace, "namespace", "", "namespace whose models are served (also POD_NAMESPACE)")
	f.StringVar(&o.RouterName, "router-name", "default", "InferenceRouter that holds heartbeat, ring and timeouts")
	f.StringVar(&o.PodName, "pod-name", "", "name of this pod (also POD_NAME)")
	f.StringVar(&o.HTTPAddress, "http-address", ":8080", "address for clients")
	f.StringVar(&o.GRPCAddress, "grpc-address", ":9443", "address for the manager")
	f.StringVar(&o.OpsAddress, "ops-address", ":8081", "address of /livez, /readyz and /metrics")
	f.StringVar(&o.TLSDir, "tls-dir", "/etc/ringfleet/tls", "folder of tls.crt, tls.key and ca.crt")
	f.StringVar(&o.ClientTLSDir, "client-tls-dir", "", "folder of the tls.crt and tls.key that clients see; empty serves them without TLS")
	f.IntVar(&o.MaxConnections, "max-connections", 10_000, "most connections of clients")
	f.Int64Var(&o.PrefixIndexBytes, "prefix-index-bytes", 64<<20, "most bytes for what is known of the workers' prompt caches")
	f.Int64Var(&o.MaxKeptBytes, "max-kept-bytes", 128<<20, "most bytes of answers under way that are kept so that these can go on at another worker")
	f.DurationVar(&o.DrainSettle, "drain-settle", 5*time.Second, "time after SIGTERM in which new requests are still served")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", 10*time.Minute, "time for running requests to finish after SIGTERM")
	f.Int64Var(&o.MaxBodyBytes, "max-body-bytes", 10<<20, "most bytes in the body of a request")
	f.Int64Var(&o.MaxBodyBytesTotal, "max-body-bytes-total", 128<<20, "most bytes in the bodies of all requests that run, and in the copies and answers of those for embeddings")
	f.StringVar(&o.OTLPEndpoint, "otlp-endpoint", "", "URL of a collector of OpenTelemetry traces, by OTLP over gRPC (also OTEL_EXPORTER_OTLP_ENDPOINT); empty traces nothing")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file, for use outside a cluster")
	also := map[string]string{"namespace": "POD_NAMESPACE", "pod-name": "POD_NAME", "otlp-endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT"}
	f.VisitAll(func(x *flag.Flag) {
		own := "RINGFLEET_" + strings.ToUpper(strings.ReplaceAll(x.Name, "-", "_"))
		for _, key := range []string{also[x.Name], own} {
			if key == "" || getenv(key) == "" {
				continue
			}
			if err := f.Set(x.Name, getenv(key)); err != nil {
				o.bad = append(o.bad, fmt.Errorf("%s %q: %w", key, getenv(key), err))
			}
		}
	})
}

// Validate returns every setting that can't work, by its flag and value.
func (o *Options) Validate() error {
	errs := append([]error(nil), o.bad...)
	for _, s := range []struct{ flag, value string }{
		{"namespace", o.Namespace}, {"router-name", o.RouterName}, {"pod-name", o.PodName}, {"tls-dir", o.TLSDir},
		{"http-address", o.HTTPAddress}, {"grpc-address", o.GRPCAddress}, {"ops-address", o.OpsAddress},
	} {
		if s.value == "" {
			errs = append(errs, fmt.Errorf("--%s is empty: want a value", s.flag))
		}
	}
	if o.DrainSettle < 0 || o.DrainTimeout < o.DrainSettle {
		errs = append(errs, fmt.Errorf("--drain-settle %s, --drain-timeout %s: want 0s or more, and the second not below the first",
			o.DrainSettle, o.DrainTimeout))
	}
	if o.MaxBodyBytes < 1<<10 || o.MaxBodyBytes > mostBodyBytes {
		errs = append(errs, fmt.Errorf("--max-body-bytes %d: want from %d to %d", o.MaxBodyBytes, 1<<10, mostBodyBytes))
	}
	if o.MaxConnections < 1 {
		errs = append(errs, fmt.Errorf("--max-connections %d: want 1 or more", o.MaxConnections))
	}
	if o.PrefixIndexBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("--prefix-index-bytes %d: want %d or more", o.PrefixIndexBytes, 1<<20))
	}
	if o.MaxKeptBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("--max-kept-bytes %d: want %d or more", o.MaxKeptBytes, 1<<20))
	}
	if least := gateway.MostHeld(o.MaxBodyBytes); o.MaxBodyBytesTotal < least {
		errs = append(errs, fmt.Errorf("--max-body-bytes-total %d: want %d or more, which one request for embeddings may need where --max-body-bytes is %d",
			o.MaxBodyBytesTotal, least, o.MaxBodyBytes))
	}
	return errors.Join(errs...)
}
