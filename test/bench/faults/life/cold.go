package life

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
	"github.com/ringfleet/ringfleet/test/bench/router/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/fixtures"
)

// late is how late a slow API server answers.
const late = 2 * time.Second

// ways are how the API server is slow: which of its answers are late, or that it answers none at first.
var ways = []struct {
	name string
	late []string // resources
	dead bool
}{
	{name: "models late", late: []string{"/inferencemodels"}},
	{name: "endpoints late", late: []string{"/endpointslices"}},
	{name: "settings late", late: []string{"/inferencerouters"}},
	{name: "all late", late: []string{"/"}},
	{name: "503 at first", dead: true},
}

// coldStart is F27.
func coldStart() []trial.Trial {
	return []trial.Trial{{
		ID: "F27", Says: "a router starts while the API server is slow", Times: 5, Takes: 27 * time.Second, Most: 5 * time.Minute,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			a, err := serve(ctx, r)
			if err != nil {
				return nil, err
			}
			defer a.close()
			var c cold
			for i := range max(times, len(ways)) {
				if err := c.start(ctx, r, a, i%len(ways), fmt.Sprintf("cold-%d", i)); err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i%len(ways)].name, err)
				}
			}
			return []bench.Figure{
				bench.AtMost("F27 answers 404 for a model that is there", c.missing, "", 0),
				bench.AtLeast("F27 answers 503 with Retry-After before the router knew the models", c.later, "", 1),
				bench.AtMost("F27 other answers before that", c.other, "", 0),
				bench.AtMost("F27 routers that were ready and did not know the model", c.early, "", 0),
				bench.Plain("F27 longest time from the start until ready", c.ready.Max(), "s"),
			}, nil
		},
	}}
}

// apiserver is a real one, behind a proxy that makes it slow.
type apiserver struct {
	env        *envtest.Environment
	proxy      *httptest.Server
	kubeconfig string
	router     string // the program

	way   atomic.Int32
	alive atomic.Int64 // from when it answers, in nanoseconds
}

// serve starts an API server with one model, and compiles the router.
func serve(ctx context.Context, r *rig.Rig) (*apiserver, error) {
	log.SetLogger(logr.Discard()) // else envtest's own lines are in the way
	a := &apiserver{router: filepath.Join(r.Dir(), "router"), kubeconfig: filepath.Join(r.Dir(), "kubeconfig")}
	_, err := process.Run(ctx, process.Spec{Path: "go", Dir: r.Shared.Root, Args: []string{"build", "-trimpath", "-buildvcs=false", "-o", a.router, "./router"}})
	if err != nil {
		return nil, err
	}
	assets, err := process.Run(ctx, process.Spec{Path: "go", Dir: r.Shared.Root, Args: []string{"run", "./hack/cluster", "assets"}})
	if err != nil {
		return nil, err
	}
	a.env = &envtest.Environment{BinaryAssetsDirectory: strings.TrimSpace(assets), ErrorIfCRDPathMissing: true,
		CRDDirectoryPaths: []string{filepath.Join(r.Shared.Root, "api", "crd")}}
	config, err := a.env.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	if err := a.fill(ctx, config); err != nil {
		a.close()
		return nil, err
	}
	return a, a.slow(config)
}

// fill makes the namespace and the model.
func (a *apiserver) fill(ctx context.Context, config *rest.Config) error {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return err
	}
	m := fixtures.Model()
	m.Namespace, m.Name, m.Spec.ModelName = rig.Namespace, rig.ModelName, ""
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rig.Namespace}}
	if err := errors.Join(c.Create(ctx, ns), c.Create(ctx, m)); err != nil {
		return fmt.Errorf("make the model: %w", err)
	}
	m.Status.ServedNames = []string{rig.ModelName}
	if err := c.Status().Update(ctx, m); err != nil {
		return fmt.Errorf("publish the model's name: %w", err)
	}
	return nil
}

// slow puts the proxy before the API server, and writes how it is reached.
func (a *apiserver) slow(config *rest.Config) error {
	t, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	p := &httputil.ReverseProxy{Transport: t, FlushInterval: -1, Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(to) }}
	a.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		way := ways[a.way.Load()]
		if way.dead && time.Now().UnixNano() < a.alive.Load() {
			http.Error(w, "etcd is away", http.StatusServiceUnavailable)
			return
		}
		for _, part := range way.late {
			if strings.Contains(q.URL.Path, part) && command.Pause(q.Context(), late) != nil {
				return
			}
		}
		p.ServeHTTP(w, q)
	}))
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`, a.proxy.URL)
	return os.WriteFile(a.kubeconfig, []byte(text), 0o600)
}

func (a *apiserver) close() {
	if a.proxy != nil {
		a.proxy.CloseClientConnections()
		a.proxy.Close()
	}
	_ = a.env.Stop() // what it leaves ends with this process
}

// cold is what F27 sees.
type cold struct {
	missing, later, other, early float64
	ready                        trial.Series
}

// start starts a router and asks it from its first moment until a second after it is ready.
func (c *cold) start(ctx context.Context, r *rig.Rig, a *apiserver, way int, name string) error {
	a.way.Store(int32(way))
	a.alive.Store(time.Now().Add(late).UnixNano())
	var at [3]string
	for i := range at {
		port, err := r.Port()
		if err != nil {
			return err
		}
		at[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	began := time.Now()
	p, err := peers.Quiet(ctx, filepath.Join(r.Dir(), name+".log"), a.router, "--namespace="+rig.Namespace, "--pod-name="+name, "--kubeconfig="+a.kubeconfig,
		"--tls-dir="+filepath.Join(r.Dir(), "keys", "router"), "--http-address="+at[0], "--grpc-address="+at[1], "--ops-address="+at[2])
	if err != nil {
		return err
	}
	defer p.Stop()
	until := time.Time{}
	for until.IsZero() || time.Now().Before(until) {
		select {
		case <-p.Ended():
			return p.Lost()
		default:
		}
		if time.Since(began) > time.Minute {
			return errors.New("the router does not become ready")
		}
		ready := status(ctx, http.MethodGet, "http://"+at[2]+"/readyz", "") == http.StatusOK
		if ready && until.IsZero() {
			until = time.Now().Add(time.Second)
			c.ready.Took(time.Since(began))
		}
		c.count(status(ctx, http.MethodGet, "http://"+at[0]+"/v1/models/"+rig.ModelName, ""), ready)
		c.count(status(ctx, http.MethodPost, "http://"+at[0]+"/v1/chat/completions",
			fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, rig.ModelName)), ready)
		if err := command.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// count judges one answer. 0 is none: nobody listens yet, or the request waits for a worker, as it should.
func (c *cold) count(status int, ready bool) {
	switch {
	case status == 0 || status == http.StatusOK:
	case status == http.StatusNotFound:
		c.missing++
	case status == http.StatusServiceUnavailable && ready:
		c.early++
	case status == http.StatusServiceUnavailable:
		c.later++
	default:
		c.other++
	}
}

// asker gives up soon.
var asker = &http.Client{Timeout: 100 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}

// status is what a request is answered; 0: nothing in time, and -1 a 503 that does not say when to come back.
func status(ctx context.Context, method, url, body string) int {
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0
	}
	q.Header.Set("Content-Type", "application/json")
	a, err := asker.Do(q)
	if err != nil {
		return 0
	}
	_ = a.Body.Close() // only the status counts
	if a.StatusCode == http.StatusServiceUnavailable && method == http.MethodPost && a.Header.Get("Retry-After") == "" {
		return -1
	}
	return a.StatusCode
}
