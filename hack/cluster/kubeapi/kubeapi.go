// Package kubeapi asks a cluster's API server the few questions that starting and watching the cluster
// needs: over plain HTTP, so that the cluster tool stays small. It decides nothing and changes nothing.
package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 20

// Client asks one API server.
type Client struct {
	server string
	http   *http.Client
}

// New makes a client from PEM: whom to trust, and who the client is.
func New(server string, ca, cert, key []byte) (*Client, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("read the cluster's authority: no certificate")
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
		DisableKeepAlives: true}
	return &Client{server: server, http: &http.Client{Transport: t, Timeout: 5 * time.Second}}, nil
}

// Get returns the answer for a path; an answer other than 200 is an error.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return text, err
}

// NodesReady says of every node that the API knows whether it is ready.
func (c *Client) NodesReady(ctx context.Context) (map[string]bool, error) {
	text, err := c.Get(ctx, "/api/v1/nodes")
	if err != nil {
		return nil, err
	}
	return parseNodes(text)
}

func parseNodes(text []byte) (map[string]bool, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("parse the list of nodes: %w", err)
	}
	out := map[string]bool{}
	for _, n := range list.Items {
		out[n.Metadata.Name] = false
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" {
				out[n.Metadata.Name] = c.Status == "True"
			}
		}
	}
	return out, nil
}
