package manager

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/autoscaler"
	"github.com/ringfleet/ringfleet/controllers/fleetclient"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter"
	"github.com/ringfleet/ringfleet/controllers/inferencerouter/desired"
	"github.com/ringfleet/ringfleet/controllers/metrics"
	"github.com/ringfleet/ringfleet/controllers/pki"
	"github.com/ringfleet/ringfleet/controllers/workerpool"
)

// setUp adds the controllers to mgr. Call stop when mgr has ended.
func setUp(mgr ctrl.Manager, o Options, c clock.WithTicker) (stop func(), err error) {
	secrets, err := newSecrets(mgr, o)
	if err != nil {
		return nil, err
	}
	authority := pki.NewAuthority(secrets.ca, secrets.live, secrets.live,
		types.NamespacedName{Namespace: o.Namespace, Name: o.CASecret}, c)
	source := pki.NewSource(authority, c)
	fleet := fleetclient.New(findPods(mgr.GetClient()), managerCredentials(source), c)
	silent := func() int { return fleet.Silent(inferencemodel.SilentAfter) }
	set := metrics.New(mgr.GetCache(), silent, c)
	if err := crmetrics.Registry.Register(set); err != nil {
		fleet.Close()
		return nil, fmt.Errorf("register the metrics: %w", err)
	}
	stop = func() {
		fleet.Close()
		crmetrics.Registry.Unregister(set)
	}
	issuer := pki.NewIssuer(authority, secrets.readers(), secrets.live, c, set.Expires)
	recorder := mgr.GetEventRecorder(name)
	err = errors.Join(
		(&pki.Reconciler{
			Client: mgr.GetClient(), Issuer: issuer, Clock: c, RoleSecrets: secrets.roles, CASecret: secrets.ca,
			Forget: func(namespace string) { source.Forget(namespace); fleet.Forget(namespace) },
		}).SetupWithManager(mgr),
		(&inferencerouter.Reconciler{
			Client: mgr.GetClient(), Recorder: recorder, Issuer: issuer, Clock: c,
			Settings: desired.Settings{
				Image: o.RouterImage, PullPolicy: corev1.PullPolicy(o.PullPolicy), ClusterRole: o.RouterClusterRole,
			},
		}).SetupWithManager(mgr),
		(&inferencemodel.Reconciler{
			Client: set.CountPods(mgr.GetClient()), Live: mgr.GetAPIReader(), Routers: fleetView{fleet}, Events: recorder, Clock: c,
			WorkerImage: o.WorkerImage, WorkerCUDAImage: o.WorkerCUDAImage, PullPolicy: corev1.PullPolicy(o.PullPolicy), Concurrency: parallel,
		}).SetupWithManager(mgr),
		(&autoscaler.Waker{Client: mgr.GetClient(), Routers: fleet, Events: recorder, Clock: c}).SetupWithManager(mgr),
		(&workerpool.Reconciler{Client: mgr.GetClient(), Recorder: recorder, Clock: c}).SetupWithManager(mgr),
	)
	if err != nil {
		stop()
		return nil, fmt.Errorf("set up the controllers: %w", err)
	}
	return stop, nil
}

// secrets are how the manager reads and writes the Secrets that it keeps. Writes go past the manager's own client, whose
// reads wait for its writes: it would list all Secrets of the cluster to see them.
type secrets struct {
	live  client.Client
	roles map[identity.Role]cache.Cache
	ca    cache.Cache
}

func newSecrets(mgr ctrl.Manager, o Options) (secrets, error) {
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return secrets{}, fmt.Errorf("make the client for Secrets: %w", err)
	}
	worker, err := secretCache(mgr, v1alpha1.SecretWorkerTLS, "")
	if err != nil {
		return secrets{}, err
	}
	router, err := secretCache(mgr, v1alpha1.SecretRouterTLS, "")
	if err != nil {
		return secrets{}, err
	}
	ca, err := secretCache(mgr, o.CASecret, o.Namespace)
	if err != nil {
		return secrets{}, err
	}
	return secrets{live: live, roles: map[identity.Role]cache.Cache{identity.Worker: worker, identity.Router: router}, ca: ca}, nil
}

func (s secrets) readers() map[identity.Role]client.Reader {
	readers := map[identity.Role]client.Reader{}
	for role, c := range s.roles {
		readers[role] = c
	}
	return readers
}

// managerCredentials show the manager's certificate for a namespace to the routers and workers of that namespace.
func managerCredentials(source *pki.Source) fleetclient.Credentials {
	return func(namespace string) (credentials.TransportCredentials, error) {
		creds, err := identity.ClientCredentials(source.Provider(namespace), identity.In(namespace, identity.Router, identity.Worker))
		if err != nil {
			return nil, fmt.Errorf("the manager's credentials for namespace %s: %w", namespace, err)
		}
		return creds, nil
	}
}
