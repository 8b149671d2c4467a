// Package build makes the cluster's programs from their Go modules and keeps them in the user's cache, under
// a key of all that they are made from. What is there already is never built again. Which Debian packages
// must be installed is decided here too; starting anything is package member's job.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Component is a Go module, or a package of one, that becomes one folder of the cache.
type Component struct {
	Name string
	// Dir is the module's folder below hack/cluster.
	Dir string
	// Module is the dependency whose version is the component's; empty: it has none.
	Module string
	// Packages are what to build, and Binaries what comes out.
	Packages, Binaries []string
	// Links are more names of Binaries[0].
	Links []string
	// LinkerFlags may hold VERSION, MAJOR and MINOR.
	LinkerFlags string
}

// Kube is every Kubernetes component and etcd as one binary.
func Kube() Component {
	flags := "-s -w"
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += strings.ReplaceAll(" -X P.gitVersion=VERSION -X P.gitMajor=MAJOR -X P.gitMinor=MINOR -X P.gitTreeState=clean", "P.", p+".")
	}
	return Component{Name: "kube", Dir: "kube", Module: "k8s.io/kubernetes", Packages: []string{"."}, Binaries: []string{"kube"},
		Links: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"}, LinkerFlags: flags}
}

// Containerd is the container runtime with its shim and client.
func Containerd() Component {
	return Component{Name: "containerd", Dir: "containerd", Module: "github.com/containerd/containerd/v2", Packages: []string{"tool"},
		Binaries:    []string{"containerd", "containerd-shim-runc-v2", "ctr"},
		LinkerFlags: "-s -w -X github.com/containerd/containerd/v2/version.Version=VERSION"}
}

// CoreDNS is the DNS server.
func CoreDNS() Component {
	return Component{Name: "coredns", Dir: "coredns", Module: "github.com/coredns/coredns", Packages: []string{"."},
		Binaries: []string{"coredns"}, LinkerFlags: "-s -w"}
}

// Pause is the process of every pod's sandbox.
func Pause() Component {
	return Component{Name: "pause", Dir: "pause", Packages: []string{"."}, Binaries: []string{"pause"}, LinkerFlags: "-s -w"}
}

// source is what a component's key is made from.
type source struct {
	files   map[string][]byte // go.mod, go.sum and Go files by name
	version string            // of Module
	goVersion,
	platform string // GOOS/GOARCH
}

func readSource(dir string, c Component) (source, error) {
	s := source{files: map[string][]byte{}}
	for _, pattern := range []string{"go.mod", "go.sum", "*.go"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return s, err
		}
		for _, f := range found {
			if s.files[filepath.Base(f)], err = os.ReadFile(f); err != nil {
				return s, fmt.Errorf("read the source of %s: %w", c.Name, err)
			}
		}
	}
	if len(s.files) == 0 {
		return s, fmt.Errorf("read the source of %s: nothing in %s", c.Name, dir)
	}
	if c.Module != "" {
		if s.version = requiredVersion(string(s.files["go.mod"]), c.Module); s.version == "" {
			return s, fmt.Errorf("read the source of %s: %s/go.mod requires no %s", c.Name, dir, c.Module)
		}
	}
	return s, nil
}

// requiredVersion finds the version of a module in a go.mod.
func requiredVersion(mod, module string) string {
	for _, line := range strings.Split(mod, "\n") {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module && strings.HasPrefix(f[1], "v") {
			return f[1]
		}
	}
	return ""
}

// folder names the cache folder of a component: it changes with anything that the binaries depend on.
func folder(c Component, s source) string {
	h := sha256.New() // a hash never refuses a write
	var names []string
	for n := range s.files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		_, _ = fmt.Fprintf(h, "%s %d\n%s\n", n, len(s.files[n]), s.files[n])
	}
	_, _ = fmt.Fprintf(h, "%s %s %s %q %q\n", s.goVersion, s.platform, c.LinkerFlags, c.Packages, c.Links)
	version := s.version
	if version == "" {
		version = "local"
	}
	return c.Name + "-" + version + "-" + hex.EncodeToString(h.Sum(nil))[:12]
}

// linkerFlags fills the version in.
func linkerFlags(flags, version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return strings.NewReplacer("VERSION", version, "MAJOR", major, "MINOR", minor).Replace(flags)
}
