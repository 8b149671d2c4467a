package egress

import (
	"net/http"
	"net/url"
	"sync"
)

// proxyHosts remembers the proxies that requests were sent through: their addresses are dialled unchecked.
type proxyHosts struct {
	find func(*http.Request) (*url.URL, error)

	mu    sync.Mutex // guards known
	known map[string]bool
}

// proxy is http.Transport's Proxy.
func (p *proxyHosts) proxy(r *http.Request) (*url.URL, error) {
	u, err := p.find(r)
	if err != nil || u == nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]bool{}
	}
	p.known[hostPort(u)] = true
	return u, nil
}

// has reports whether address, host:port as it is dialled, is a proxy's.
func (p *proxyHosts) has(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[address]
}
