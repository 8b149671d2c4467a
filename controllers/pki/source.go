package pki

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
)

// mintTimeout bounds a look at the authority for a handshake, which has no deadline of its own.
const mintTimeout = 5 * time.Second

// Source mints the manager's own certificates, one for each namespace that it talks to, and keeps them in memory until
// two thirds of their validity are over or the authority changes.
type Source struct {
	authority *Authority
	clock     clock.PassiveClock

	mu    sync.Mutex // guards known; never held while the authority is asked
	known map[string]minted
}

type minted struct {
	by   *CA
	cert tls.Certificate
}

// NewSource returns a source that mints by authority.
func NewSource(authority *Authority, c clock.PassiveClock) *Source {
	return &Source{authority: authority, clock: c, known: map[string]minted{}}
}

// Provider returns the manager's certificate for namespace, and the roots that its peers there have to come from. It
// may be kept: each handshake gets what holds at that moment.
func (s *Source) Provider(namespace string) certprovider.Provider {
	return provider{source: s, namespace: namespace}
}

// Forget drops the certificate for namespace.
func (s *Source) Forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, namespace)
}

func (s *Source) certificate(ctx context.Context, namespace string) (minted, error) {
	ca, err := s.authority.Get(ctx)
	if err != nil {
		return minted{}, err
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.known[namespace]; ok && m.by == ca && now.Before(RenewAt(m.cert.Leaf)) {
		return m, nil
	}
	cert, key, err := issue(ca, identity.ID{Namespace: namespace, Role: identity.Manager}, now)
	if err != nil {
		return minted{}, err
	}
	m := minted{by: ca, cert: tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}}
	s.known[namespace] = m
	return m, nil
}

type provider struct {
	source    *Source
	namespace string
}

// KeyMaterial implements certprovider.Provider.
func (p provider) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	m, err := p.source.certificate(ctx, p.namespace)
	if err != nil {
		return nil, fmt.Errorf("the manager's certificate for namespace %s: %w", p.namespace, err)
	}
	return &certprovider.KeyMaterial{Certs: []tls.Certificate{m.cert}, Roots: m.by.Pool()}, nil
}

// Close implements certprovider.Provider. There is nothing to close: the certificates belong to the source.
func (p provider) Close() {}
