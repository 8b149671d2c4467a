package source

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	orascredentials "oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/ringfleet/ringfleet/worker/weights/egress"
)

// agent is what servers see in their logs.
const agent = "ringfleet-worker"

// Options are what sources need besides a URI.
type Options struct {
	// Getenv reads the environment, where credentials and endpoints are: HF_TOKEN, HF_ENDPOINT, AWS_ACCESS_KEY_ID,
	// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ROLE_ARN and
	// AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONTAINER_CREDENTIALS_FULL_URI and …_RELATIVE_URI.
	Getenv func(string) string
	// AllowNetworks may be fetched from besides public addresses.
	AllowNetworks []netip.Prefix
	// RootCAs are trusted; nil: the system's.
	RootCAs *x509.CertPool
	// InstanceRole lets s3 use the role of the node where the pod has no keys and no identity of its own.
	InstanceRole bool
	// RegistryConfig is the path of a Docker config.json with credentials for oci; empty: none.
	RegistryConfig string
	// PlainRegistries are hosts, with ports, that oci speaks plain HTTP to.
	PlainRegistries []string
	// Connections is how many requests run at a time.
	Connections int
	// Resolver looks names up; nil: the system's.
	Resolver *net.Resolver
	// Now is read for Retry-After with a date.
	Now func() time.Time
}

// Close ends the idle connections of a source.
type Close func()

// Open returns the source of a URI, which must be hf, s3, https or oci. name is the file that is wanted, where https needs
// to be told. It connects to nothing.
func Open(u URI, name string, o Options) (Source, Close, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	policy := egress.Policy{Allow: o.AllowNetworks}
	transport := egress.Transport(egress.Options{Policy: policy, RootCAs: o.RootCAs, Connections: o.Connections, Resolver: o.Resolver})
	client := egress.Client(policy, transport)
	w := web{send: client.Do, now: o.Now}
	var s Source
	var err error
	switch u.Scheme {
	case HF:
		s, err = newHub(u, w, client, policy, o)
	case HTTPS:
		s, err = &server{web: w, uri: u, name: name}, check(policy, u.URL, false)
	case S3:
		s, err = newStore(u, transport, policy, o)
	case OCI:
		s, err = newRegistry(u, w, client, policy, o)
	default:
		err = refuse(Unusable, "%s is not fetched", u)
	}
	if err != nil {
		transport.CloseIdleConnections()
		return nil, nil, err
	}
	return s, transport.CloseIdleConnections, nil
}

func check(p egress.Policy, u *url.URL, plain bool) error {
	if err := p.CheckURL(u, plain); err != nil {
		return refuse(Forbidden, "%s", err)
	}
	return nil
}

// endpoint reads the first variable that is set, or fallback. Plain HTTP is allowed: who sets the variable sees it.
func endpoint(p egress.Policy, getenv func(string) string, fallback string, variables ...string) (*url.URL, error) {
	for _, v := range variables {
		s := strings.TrimSuffix(getenv(v), "/")
		if s == "" {
			continue
		}
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.RawQuery != "" {
			return nil, refuse(Unusable, "%s is no URL such as %s", v, fallback)
		}
		return u, check(p, u, true)
	}
	return url.Parse(fallback)
}

func newHub(u URI, w web, client *http.Client, p egress.Policy, o Options) (Source, error) {
	at, err := endpoint(p, o.Getenv, "https://huggingface.co", "HF_ENDPOINT")
	if err != nil {
		return nil, err
	}
	plain := &http.Client{Transport: client.Transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Host == via[0].URL.Host { // a model that has got another name
			return client.CheckRedirect(next, via)
		}
		return http.ErrUseLastResponse
	}}
	return &hub{web: w, plain: plain, endpoint: at, token: strings.TrimSpace(o.Getenv("HF_TOKEN")), uri: u, etags: map[string]string{}}, nil
}

func newStore(u URI, t http.RoundTripper, p egress.Policy, o Options) (Source, error) {
	at, err := endpoint(p, o.Getenv, "https://s3.amazonaws.com", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	if err != nil {
		return nil, err
	}
	if strings.Trim(at.Path, "/") != "" {
		return nil, refuse(Unusable, "the endpoint of the object store has the path %s, expected none", at.Path)
	}
	creds := storeCredentials(o)
	core, err := minio.NewCore(at.Host, &minio.Options{Creds: creds, Secure: at.Scheme == "https", Transport: t,
		Region: o.Getenv("AWS_REGION"), MaxRetries: 1})
	if err != nil {
		return nil, refuse(Unusable, "%s: %s", u, short(err.Error()))
	}
	core.SetAppInfo(agent, "v1")
	return &store{core: core, creds: creds, uri: u}, nil
}

// storeCredentials chooses keys, then the pod's own identity, then, only where that is asked for, the node's, then none.
// Without the asking, whoever names a bucket would read it with the node's rights. The identities' own endpoints are given
// by the pod's environment and are not the model's to choose, so the policy doesn't bind them.
func storeCredentials(o Options) *credentials.Credentials {
	key, secret := o.Getenv("AWS_ACCESS_KEY_ID"), o.Getenv("AWS_SECRET_ACCESS_KEY")
	identity := slices.ContainsFunc([]string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}, func(v string) bool { return o.Getenv(v) != "" })
	switch {
	case key != "" && secret != "":
		return credentials.NewStaticV4(key, secret, o.Getenv("AWS_SESSION_TOKEN"))
	case identity || o.InstanceRole:
		i := &credentials.IAM{Client: &http.Client{Timeout: 20 * time.Second}, Region: o.Getenv("AWS_REGION")}
		i.EKSIdentity.TokenFile, i.EKSIdentity.RoleARN = o.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"), o.Getenv("AWS_ROLE_ARN")
		i.Container.CredentialsFullURI = o.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
		i.Container.CredentialsRelativeURI = o.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
		return credentials.New(i)
	}
	return credentials.NewStaticV4("", "", "")
}

func newRegistry(u URI, w web, client *http.Client, p egress.Policy, o Options) (Source, error) {
	repo, err := remote.NewRepository(u.Name)
	if err != nil {
		return nil, refuse(Unusable, "%s is no repository's name", u)
	}
	repo.PlainHTTP = slices.Contains(o.PlainRegistries, repo.Reference.Registry)
	c := &auth.Client{Client: client, Cache: auth.NewCache(), Header: http.Header{"User-Agent": {agent}},
		BlockedRealmPrefixes: []netip.Prefix{}} // the transport checks what it dials, for tokens too
	if o.RegistryConfig != "" {
		// Credentials in the file itself; helper programs that it may name are not run.
		file, err := orascredentials.NewFileStore(o.RegistryConfig)
		if err != nil {
			return nil, refuse(Unauthorized, "the file of registry credentials %s can't be read", o.RegistryConfig)
		}
		c.Credential = orascredentials.Credential(file)
	}
	repo.Client, w.send = c, c.Do
	g := &registry{web: w, repo: repo, uri: u}
	return g, check(p, g.endpoint(), repo.PlainHTTP)
}

// endpoint is the registry's address.
func (g *registry) endpoint() *url.URL {
	if g.repo.PlainHTTP {
		return &url.URL{Scheme: "http", Host: g.repo.Reference.Host()}
	}
	return &url.URL{Scheme: "https", Host: g.repo.Reference.Host()}
}
