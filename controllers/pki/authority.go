package pki

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Authority keeps the installation's certificate authority in one Secret: it makes the Secret when there is none, and
// never replaces one that exists. Whoever rotates the authority changes the Secret, and Authority follows.
type Authority struct {
	reader client.Reader // may be behind
	live   client.Reader // never behind
	writer client.Writer
	key    types.NamespacedName
	clock  clock.PassiveClock

	mu   sync.Mutex        // guards data and ca; held while the Secret is made, so that it is made once
	data map[string][]byte // what ca was read from
	ca   *CA
}

// NewAuthority returns the authority in the Secret key. Reads go to reader, a cache of that Secret; live asks the API
// server.
func NewAuthority(reader, live client.Reader, writer client.Writer, key types.NamespacedName, c clock.PassiveClock) *Authority {
	return &Authority{reader: reader, live: live, writer: writer, key: key, clock: c}
}

// Get returns the authority as its Secret has it now, and makes it when there is no such Secret. A Secret that can't be
// read is an error that says what to do: a new authority in its place would cut every router from every worker.
func (a *Authority) Get(ctx context.Context) (*CA, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	secret := &corev1.Secret{}
	err := a.reader.Get(ctx, a.key, secret)
	if apierrors.IsNotFound(err) {
		secret, err = a.create(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority in Secret %s: %w", a.key, err)
	}
	if a.ca != nil && maps.EqualFunc(a.data, secret.Data, bytes.Equal) {
		return a.ca, nil
	}
	ca, err := ParseCA(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("the certificate authority in Secret %s can't be used: %w; restore the Secret from a backup, "+
			"or delete it to get a new authority (workers and routers lose each other for about two minutes)", a.key, err)
	}
	a.ca, a.data = ca, secret.Data
	return ca, nil
}

// create makes the Secret, or returns the one that somebody else has made meanwhile.
func (a *Authority) create(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := a.live.Get(ctx, a.key, secret); !apierrors.IsNotFound(err) {
		return secret, err
	}
	ca, err := NewCA(a.clock.Now())
	if err != nil {
		return nil, err
	}
	data, err := ca.Data()
	if err != nil {
		return nil, err
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: a.key.Name, Namespace: a.key.Namespace, Labels: labels("ca")},
		Type:       corev1.SecretTypeTLS,
		Data:       data,
	}
	err = a.writer.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		secret = &corev1.Secret{}
		err = a.live.Get(ctx, a.key, secret)
	}
	return secret, err
}

func labels(component string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":    "ringfleet",
		"app.kubernetes.io/part-of": "ringfleet",
		v1alpha1.LabelManagedBy:     v1alpha1.ManagedBy,
		v1alpha1.LabelComponent:     component,
	}
}
