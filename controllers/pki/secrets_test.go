package pki

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ringfleet/ringfleet/api/identity"
)

var caKey = types.NamespacedName{Namespace: "ringfleet-system", Name: "ringfleet-ca"}

// fixture is an issuer over a fake API server that counts writes.
type fixture struct {
	client    client.Client
	clock     *clocktesting.FakePassiveClock
	authority *Authority
	issuer    *Issuer
	writes    int
	ends      map[string]time.Time
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fixture{clock: clocktesting.NewFakePassiveClock(start), ends: map[string]time.Time{}}
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			f.writes++
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			f.writes++
			return c.Update(ctx, obj, opts...)
		},
	}).Build()
	f.authority = NewAuthority(f.client, f.client, f.client, caKey, f.clock)
	readers := map[identity.Role]client.Reader{identity.Worker: f.client, identity.Router: f.client}
	f.issuer = NewIssuer(f.authority, readers, f.client, f.clock, func(namespace string, role identity.Role, until time.Time) {
		f.ends[namespace+"/"+string(role)] = until
	})
	return f
}

func (f *fixture) ensure(t *testing.T) time.Time {
	t.Helper()
	due, err := f.issuer.Ensure(t.Context(), "team-a")
	if err != nil {
		t.Fatal(err)
	}
	return due
}

func (f *fixture) secret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := f.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSecretsAreWrittenOnceAndThenOnlyWhenDue(t *testing.T) {
	f := newFixture(t)
	due := f.ensure(t)
	if f.writes != 3 {
		t.Fatalf("%d writes, want one for the authority and one for each role", f.writes)
	}
	f.clock.SetTime(due.Add(-time.Second))
	f.ensure(t)
	if f.writes != 3 {
		t.Errorf("%d writes before the certificates are due, want none more", f.writes-3)
	}
	first := f.secret(t, "team-a", "ringfleet-worker-tls")
	f.clock.SetTime(due)
	next := f.ensure(t)
	if f.writes != 5 || !next.After(due) {
		t.Errorf("%d writes when due, want 2; next at %s", f.writes-3, next)
	}
	second := f.secret(t, "team-a", "ringfleet-worker-tls")
	if string(first.Data[identity.CertFile]) == string(second.Data[identity.CertFile]) || string(first.Data[identity.RootFile]) != string(second.Data[identity.RootFile]) {
		t.Error("renewal must change the certificate and keep the roots")
	}
	if second.Type != corev1.SecretTypeTLS {
		t.Errorf("type %s", second.Type)
	}
	if got := f.ends["team-a/worker"]; !got.Equal(leaf(t, second.Data).NotAfter) {
		t.Errorf("told that the worker's certificate ends at %s", got)
	}
}

func TestADeletedSecretIsMadeAgain(t *testing.T) {
	f := newFixture(t)
	f.ensure(t)
	if err := f.client.Delete(t.Context(), f.secret(t, "team-a", "ringfleet-router-tls")); err != nil {
		t.Fatal(err)
	}
	f.ensure(t)
	if id, err := identity.Of(leaf(t, f.secret(t, "team-a", "ringfleet-router-tls").Data)); err != nil || id.Role != identity.Router {
		t.Errorf("the new Secret is for %v (%v)", id, err)
	}
}

func TestABrokenAuthorityIsNamedAndNeverReplaced(t *testing.T) {
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: caKey.Namespace, Name: caKey.Name}, Data: map[string][]byte{identity.CertFile: []byte("x")}}
	f := newFixture(t, broken)
	_, err := f.issuer.Ensure(t.Context(), "team-a")
	for _, want := range []string{caKey.String(), "restore", "delete"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if f.writes != 0 || string(f.secret(t, caKey.Namespace, caKey.Name).Data[identity.CertFile]) != "x" {
		t.Error("the broken authority was touched")
	}
}

func TestTheAuthorityThatSomebodyElseMadeIsTaken(t *testing.T) {
	f := newFixture(t)
	theirs := newCA(t, start)
	data, err := theirs.Data()
	if err != nil {
		t.Fatal(err)
	}
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: caKey.Namespace, Name: caKey.Name}, Data: data}
	absent := behind{Reader: f.client}
	racing := &racingWriter{Client: f.client, first: stored}
	a := NewAuthority(absent, &behindOnce{Reader: f.client}, racing, caKey, f.clock)
	ca, err := a.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !ca.cert.Equal(theirs.cert) {
		t.Error("another authority is used than the one that is stored")
	}
}

// behind is a cache that has seen nothing yet.
type behind struct{ client.Reader }

func (behind) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

// behindOnce misses the object the first time.
type behindOnce struct {
	client.Reader
	asked bool
}

func (b *behindOnce) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if !b.asked {
		b.asked = true
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	return b.Reader.Get(ctx, key, obj, opts...)
}

// racingWriter lets somebody else create first.
type racingWriter struct {
	client.Client
	first client.Object
}

func (r *racingWriter) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := r.Client.Create(ctx, r.first); err != nil {
		return err
	}
	return r.Client.Create(ctx, obj, opts...)
}

func TestARotationReissuesEverySecretAndTrustsBoth(t *testing.T) {
	f := newFixture(t)
	f.ensure(t)
	before := leaf(t, f.secret(t, "team-a", "ringfleet-worker-tls").Data)
	next := newCA(t, start)
	stored := f.secret(t, caKey.Namespace, caKey.Name)
	stored.Data[identity.RootFile] = append(stored.Data[identity.RootFile], encodeCert(next.cert.Raw)...)
	data, err := next.Data()
	if err != nil {
		t.Fatal(err)
	}
	stored.Data[identity.CertFile], stored.Data[identity.KeyFile] = data[identity.CertFile], data[identity.KeyFile]
	if err := f.client.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	f.ensure(t)
	after := f.secret(t, "team-a", "ringfleet-worker-tls")
	roots, err := parseCerts(after.Data[identity.RootFile])
	if err != nil || len(roots) != 2 {
		t.Fatalf("%d roots (%v), want the old and the new one", len(roots), err)
	}
	if leaf(t, after.Data).CheckSignatureFrom(next.cert) != nil || before.CheckSignatureFrom(next.cert) == nil {
		t.Error("the new authority must have signed the new certificate, and not the old one")
	}
}

func TestSecretsGoWithTheLastUserButNotThoseOfOthers(t *testing.T) {
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "ringfleet-worker-tls"}}
	f := newFixture(t, foreign)
	f.ensure(t)
	for _, namespace := range []string{"team-a", "team-b"} {
		if err := f.issuer.Remove(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	list := &corev1.SecretList{}
	if err := f.client.List(t.Context(), list, client.InNamespace("team-a")); err != nil || len(list.Items) != 0 {
		t.Errorf("%d Secrets are left (%v)", len(list.Items), err)
	}
	f.secret(t, "team-b", "ringfleet-worker-tls")
	if !f.ends["team-a/worker"].IsZero() {
		t.Error("the end of a certificate that is gone is still told")
	}
}

func TestTheManagersCertificateIsKeptUntilItIsDueOrTheAuthorityChanges(t *testing.T) {
	f := newFixture(t)
	source := NewSource(f.authority, f.clock)
	mint := func() string {
		t.Helper()
		km, err := source.Provider("team-a").KeyMaterial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id, err := identity.Of(km.Certs[0].Leaf); err != nil || id != (identity.ID{Namespace: "team-a", Role: identity.Manager}) {
			t.Fatalf("the certificate is for %v (%v)", id, err)
		}
		return km.Certs[0].Leaf.SerialNumber.String()
	}
	first := mint()
	if again := mint(); again != first {
		t.Error("a second handshake got another certificate")
	}
	f.clock.SetTime(start.Add(roleValidity))
	due := mint()
	if due == first {
		t.Error("the certificate was not renewed")
	}
	if err := f.client.Delete(t.Context(), f.secret(t, caKey.Namespace, caKey.Name)); err != nil {
		t.Fatal(err)
	}
	if mint() == due {
		t.Error("the certificate is not of the new authority")
	}
}
