// Package peers starts the routers that Ringfleet's is measured beside: Envoy and vLLM's, and nginx where it is installed.
// Which versions, and how each is told to hash by session, is decided here; nothing is measured.
package peers

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// SessionHeader is the header by whose value all routers keep requests together.
const SessionHeader = "x-session-id"

// Nginx is a peer that is measured where the machine has it; it is not installed for that.
const Nginx = "nginx"

// Names are all peers there are.
func Names() []string { return []string{install.Envoy, install.VLLMRouter, Nginx} }

// Present are those of names that can be started here, and absent the others.
func Present(names []string) (present, absent []string) {
	for _, name := range names {
		if _, err := exec.LookPath(Nginx); name == Nginx && err != nil {
			absent = append(absent, name)
			continue
		}
		present = append(present, name)
	}
	return present, absent
}

// Version is what is measured.
func Version(name string) string {
	if name != Nginx {
		return install.Version(name)
	}
	said, err := exec.Command(Nginx, "-v").CombinedOutput() // nginx version: nginx/1.22.1
	if err != nil {
		return ""
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(said)), "/")
	return version
}

// Start starts a peer on port, in front of workers on their ports. dir is for its files.
func Start(ctx context.Context, name, dir string, port int, workers []int, out io.Writer) (*process.Process, error) {
	program := Nginx
	if name != Nginx {
		folder, err := install.Get(ctx, name, out)
		if err != nil {
			return nil, err
		}
		program = install.Program(folder, name)
	}
	args, err := arguments(name, dir, port, workers)
	if err != nil {
		return nil, err
	}
	return Quiet(ctx, filepath.Join(dir, name+".log"), program, args...)
}

// Quiet starts a program with as many files as it may have, and its output in a file.
func Quiet(ctx context.Context, log, path string, args ...string) (*process.Process, error) {
	return process.Start(ctx, process.Spec{Path: "/bin/sh",
		Args: append([]string{"-c", `ulimit -n "$(ulimit -Hn)"; log=$1; shift; exec "$@" >"$log" 2>&1`, "sh", log, path}, args...)})
}

func arguments(name, dir string, port int, workers []int) ([]string, error) {
	switch name {
	case Nginx:
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(nginx(dir, port, workers)), 0o600); err != nil {
			return nil, fmt.Errorf("write nginx's configuration: %w", err)
		}
		return []string{"-p", dir, "-c", file, "-e", "stderr"}, nil
	case install.VLLMRouter:
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

// nginx is a configuration with a ring by session, one process, no timeouts for streams, and room for long prompts.
func nginx(dir string, port int, workers []int) string {
	var servers strings.Builder
	for _, w := range workers {
		fmt.Fprintf(&servers, "    server 127.0.0.1:%d max_fails=0;\n", w)
	}
	return fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 18000; }
http {
  access_log off;
  client_body_temp_path %[1]s/nginx-body;
  proxy_temp_path %[1]s/nginx-proxy;
  fastcgi_temp_path %[1]s/nginx-fastcgi;
  uwsgi_temp_path %[1]s/nginx-uwsgi;
  scgi_temp_path %[1]s/nginx-scgi;
  client_body_buffer_size 512k;
  keepalive_requests 1000000000;
  upstream workers {
    hash $http_%[3]s consistent;
%[4]s    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:%[2]d backlog=4096;
    location / {
      proxy_pass http://workers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 2h;
    }
  }
}
`, dir, port, strings.ReplaceAll(SessionHeader, "-", "_"), servers.String())
}
