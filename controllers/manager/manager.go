// Package manager wires the operator: caches, client, certificates, the client that asks routers and workers, and the
// controllers. It decides nothing about models, pools or routers.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=ringfleet-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=ringfleet-system,resources=leases,resourceNames=ringfleet-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=ringfleet-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	name = "ringfleet-manager"
	// stopTimeout is how long running reconciles may take when the manager has to stop.
	stopTimeout = 10 * time.Second
	// reconcileTimeout ends a reconcile that hangs, such as one that waits for a cache that gets no events.
	reconcileTimeout = time.Minute
	// idleGC collects earlier than Go does by default: a manager is idle for most of its life, so memory counts for more.
	idleGC = 50
	// parallel is how many objects of a kind are reconciled at once.
	parallel = 8
)

// Run reconciles until ctx ends, and returns an error when it can't start or loses its lease.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	logger := zap.New(zap.UseFlagOptions(&o.Log))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(idleGC)
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	logger.Info("Starting the manager", "version", o.Version, "server", cfg.Host, "namespace", o.Namespace)
	return RunAt(ctx, cfg, o)
}

// RunAt is Run for the API server of cfg, with valid options and a logger that is set up.
func RunAt(ctx context.Context, cfg *rest.Config, o Options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(),
		Client:                        clientOptions(),
		Metrics:                       metricsOptions(o),
		HealthProbeBindAddress:        o.ProbeAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends when Run does
		GracefulShutdownTimeout:       ptr.To(stopTimeout),
		Controller: config.Controller{
			MaxConcurrentReconciles: parallel,
			ReconciliationTimeout:   reconcileTimeout,
			SkipNameValidation:      ptr.To(true), // names are unique here, and tests run several managers in a process
		},
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("set up the probes: %w", err)
	}
	stop, err := setUp(mgr, o, clock.RealClock{})
	if err != nil {
		return err
	}
	defer stop()
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

func metricsOptions(o Options) metricsserver.Options {
	m := metricsserver.Options{
		BindAddress:   o.MetricsAddress,
		SecureServing: o.MetricsSecure,
	}
	if o.MetricsSecure {
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if o.MetricsCertPath != "" {
		m.CertDir, m.CertName, m.KeyName = o.MetricsCertPath, o.MetricsCertName, o.MetricsCertKey
	}
	if !o.EnableHTTP2 {
		m.TLSOpts = append(m.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return m
}
