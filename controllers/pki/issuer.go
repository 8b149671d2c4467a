package pki

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// Roles that have a Secret in each namespace, and the Secret's name.
var secretNames = map[identity.Role]string{
	identity.Worker: v1alpha1.SecretWorkerTLS,
	identity.Router: v1alpha1.SecretRouterTLS,
}

// roleCA is what the authority's own certificate is called where the ends of certificates are told.
const roleCA identity.Role = "ca"

// Issuer keeps the role Secrets of namespaces.
type Issuer struct {
	authority *Authority
	secrets   map[identity.Role]client.Reader
	writer    client.Writer
	clock     clock.PassiveClock
	expiry    func(namespace string, role identity.Role, until time.Time)
}

// NewIssuer returns an issuer that reads the Secrets of a role through its reader, which may be behind: a write from an
// old state meets a conflict. expiry is told when each certificate ends, and the zero time once it is gone.
func NewIssuer(
	authority *Authority, secrets map[identity.Role]client.Reader, writer client.Writer, c clock.PassiveClock,
	expiry func(namespace string, role identity.Role, until time.Time),
) *Issuer {
	return &Issuer{authority: authority, secrets: secrets, writer: writer, clock: c, expiry: expiry}
}

// Ensure makes the role Secrets of namespace what they should be, and returns when the first of them is due again.
func (i *Issuer) Ensure(ctx context.Context, namespace string) (time.Time, error) {
	ca, err := i.authority.Get(ctx)
	if err != nil {
		return time.Time{}, err
	}
	i.expiry("", roleCA, ca.NotAfter())
	var next time.Time
	for _, role := range []identity.Role{identity.Worker, identity.Router} {
		due, err := i.ensure(ctx, ca, identity.ID{Namespace: namespace, Role: role})
		if err != nil {
			return time.Time{}, err
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, nil
}

func (i *Issuer) ensure(ctx context.Context, ca *CA, id identity.ID) (time.Time, error) {
	key := types.NamespacedName{Namespace: id.Namespace, Name: secretNames[id.Role]}
	found := &corev1.Secret{}
	err := i.secrets[id.Role].Get(ctx, key, found)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return time.Time{}, fmt.Errorf("read Secret %s: %w", key, err)
	}
	why := "there is no Secret"
	if !missing {
		var due time.Time
		if why, due = NeedsRenewal(found.Data, ca, id, i.clock.Now()); why == "" {
			i.report(found.Data, id)
			return due, nil
		}
	}
	data, err := IssueRole(ca, id, i.clock.Now())
	if err != nil {
		return time.Time{}, err
	}
	if err := i.write(ctx, found, missing, key, id.Role, data); err != nil {
		return time.Time{}, fmt.Errorf("write Secret %s: %w", key, err)
	}
	logf.FromContext(ctx).Info("Issued a certificate", "secret", key, "why", why)
	i.report(data, id)
	_, due := NeedsRenewal(data, ca, id, i.clock.Now())
	return due, nil
}

func (i *Issuer) write(
	ctx context.Context, found *corev1.Secret, missing bool, key types.NamespacedName, role identity.Role, data map[string][]byte,
) error {
	if missing {
		return i.writer.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, Labels: labels(string(role))},
			Type:       corev1.SecretTypeTLS,
			Data:       data,
		})
	}
	changed := found.DeepCopy()
	changed.Data = data
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	for k, v := range labels(string(role)) {
		changed.Labels[k] = v
	}
	return i.writer.Update(ctx, changed)
}

func (i *Issuer) report(data map[string][]byte, id identity.ID) {
	if certs, err := parseCerts(data[identity.CertFile]); err == nil {
		i.expiry(id.Namespace, id.Role, certs[0].NotAfter)
	}
}

// Remove deletes the role Secrets of namespace that the manager made.
func (i *Issuer) Remove(ctx context.Context, namespace string) error {
	for role, name := range secretNames {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		found := &corev1.Secret{}
		err := i.secrets[role].Get(ctx, key, found)
		if apierrors.IsNotFound(err) || (err == nil && found.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy) {
			i.expiry(namespace, role, time.Time{})
			continue
		}
		if err == nil {
			err = i.writer.Delete(ctx, found, client.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Secret %s: %w", key, err)
		}
		i.expiry(namespace, role, time.Time{})
	}
	return nil
}
