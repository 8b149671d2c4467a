// Package identity decides who may talk to whom inside a fleet: it names the roles, builds and reads their SPIFFE ids,
// and turns a folder of PEM files into gRPC credentials that follow the files when they are renewed. It never issues a
// certificate; the manager does.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/security/advancedtls"
)

// Role is what a process is in a fleet.
type Role string

// The roles. A namespace has one certificate for each.
const (
	Manager Role = "manager"
	Router  Role = "router"
	Worker  Role = "worker"
)

// ID is one role in one namespace.
type ID struct {
	Namespace string
	Role      Role
}

// URI returns the id as certificates carry it: spiffe://ringfleet/ns/NAMESPACE/role/ROLE.
func (id ID) URI() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "ringfleet", Path: "/ns/" + id.Namespace + "/role/" + string(id.Role)}
}

// Of returns the id that cert carries, or an error when it carries none, several, or one of another form.
func Of(cert *x509.Certificate) (ID, error) {
	if len(cert.URIs) != 1 {
		return ID{}, fmt.Errorf("identity: certificate has %d URI names, want one spiffe://ringfleet/ns/…/role/…", len(cert.URIs))
	}
	u := cert.URIs[0]
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != "spiffe" || u.Host != "ringfleet" || len(parts) != 4 || parts[0] != "ns" || parts[2] != "role" {
		return ID{}, fmt.Errorf("identity: %s is not of the form spiffe://ringfleet/ns/NAMESPACE/role/ROLE", u)
	}
	id := ID{Namespace: parts[1], Role: Role(parts[3])}
	if id.Namespace == "" || !slices.Contains([]Role{Manager, Router, Worker}, id.Role) {
		return ID{}, fmt.Errorf("identity: %s names no namespace or an unknown role", u)
	}
	if u.String() != id.URI().String() { // a query, a fragment, an escape
		return ID{}, fmt.Errorf("identity: %s says more than %s", u, id.URI())
	}
	return id, nil
}

// Allows reports whether a peer that showed id may be talked to.
type Allows func(id ID) bool

// In allows the given roles of one namespace.
func In(namespace string, roles ...Role) Allows {
	return func(id ID) bool { return id.Namespace == namespace && slices.Contains(roles, id.Role) }
}

// Keepalive are a server's rules for connections. One that is half an hour old is replaced, so that both sides show and
// check certificates that were renewed meanwhile; streams on it may go on for a day. A peer that has vanished is noticed
// within 40 seconds.
func Keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{
		MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: 24 * time.Hour,
		Time: 30 * time.Second, Timeout: 10 * time.Second,
	}
}

// ServerCredentials asks every client for a certificate from the provider's roots whose id is allowed.
func ServerCredentials(p certprovider.Provider, allow Allows) (credentials.TransportCredentials, error) {
	return advancedtls.NewServerCreds(&advancedtls.Options{
		IdentityOptions:            advancedtls.IdentityCertificateOptions{IdentityProvider: p},
		RootOptions:                advancedtls.RootCertificateOptions{RootProvider: p},
		RequireClientCert:          true,
		VerificationType:           advancedtls.CertVerification,
		MinTLSVersion:              tls.VersionTLS13,
		MaxTLSVersion:              tls.VersionTLS13, // the default of advancedtls is 1.2
		AdditionalPeerVerification: verify(allow),
	})
}

// ClientCredentials shows the provider's certificate, and goes on only with a server whose id is allowed. Host names
// are not looked at: a pod's address says nothing about who it is.
func ClientCredentials(p certprovider.Provider, allow Allows) (credentials.TransportCredentials, error) {
	return advancedtls.NewClientCreds(&advancedtls.Options{
		IdentityOptions:            advancedtls.IdentityCertificateOptions{IdentityProvider: p},
		RootOptions:                advancedtls.RootCertificateOptions{RootProvider: p},
		VerificationType:           advancedtls.CertVerification,
		MinTLSVersion:              tls.VersionTLS13,
		MaxTLSVersion:              tls.VersionTLS13, // the default of advancedtls is 1.2
		AdditionalPeerVerification: verify(allow),
	})
}

func verify(allow Allows) advancedtls.PostHandshakeVerificationFunc {
	return func(info *advancedtls.HandshakeVerificationInfo) (*advancedtls.PostHandshakeVerificationResults, error) {
		id, err := Of(info.Leaf)
		if err != nil {
			return nil, err
		}
		if !allow(id) {
			return nil, fmt.Errorf("identity: %s may not talk to this process", id.URI())
		}
		return &advancedtls.PostHandshakeVerificationResults{}, nil
	}
}
