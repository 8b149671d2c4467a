// Package peers starts the routers that Ringfleet's is measured beside: Envoy and vLLM's. Which versions, and how each is
// told to hash by session, is decided here; nothing is measured.
package peers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// SessionHeader is the header by whose value all routers keep requests together.
const SessionHeader = "x-session-id"

// Names are all peers there are.
func Names() []string { return []string{install.Envoy, install.VLLMRouter} }

// Version is what is measured.
func Version(name string) string { return install.Version(name) }

// Start starts a peer on port, in front of workers on their ports. dir is for its files.
func Start(ctx context.Context, name, dir string, port int, workers []int, out io.Writer) (*process.Process, error) {
	folder, err := install.Get(ctx, name, out)
	if err != nil {
		return nil, err
	}
	args, err := arguments(name, dir, port, workers)
	if err != nil {
		return nil, err
	}
	return Quiet(ctx, filepath.Join(dir, name+".log"), install.Program(folder, name), args...)
}

// Quiet starts a program with as many files as it may have, and its output in a file.
func Quiet(ctx context.Context, log, path string, args ...string) (*process.Process, error) {
	return process.Start(ctx, process.Spec{Path: "/bin/sh",
		Args: append([]string{"-c", `ulimit -n "$(ulimit -Hn)"; log=$1; shift; exec "$@" >"$log" 2>&1`, "sh", log, path}, args...)})
}

func arguments(name, dir string, port int, workers []int) ([]string, error) {
	if name == install.VLLMRouter {
		args := []string{"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--policy", "consistent_hash", "--log-level", "warning", "--worker-urls"}
		for _, w := range workers {
			args = append(args, "http://127.0.0.1:"+strconv.Itoa(w))
		}
		return args, nil
	}
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(envoy(port, workers)), 0o600); err != nil {
		return nil, fmt.Errorf("write Envoy's configuration: %w", err)
	}
	return []string{"-c", file, "--concurrency", "1", "--log-level", "warn", "--base-id", strconv.Itoa(port)}, nil
}

// envoy is a configuration with a ring by session, no timeouts for streams, and no limits that a load would meet.
func envoy(port int, workers []int) string {
	var hosts strings.Builder
	for _, w := range workers {
		fmt.Fprintf(&hosts, "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}\n", w)
	}
	return fmt.Sprintf(`static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          stream_idle_timeout: 0s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: workers, timeout: 0s, hash_policy: [{header: {header_name: %s}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: workers
    type: STATIC
    lb_policy: RING_HASH
    circuit_breakers: {thresholds: [{max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000}]}
    load_assignment:
      cluster_name: workers
      endpoints:
      - lb_endpoints:
%s`, port, SessionHeader, hosts.String())
}
