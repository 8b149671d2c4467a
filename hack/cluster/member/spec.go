// Package member runs one member of a cluster, the hub or a node, in Linux namespaces of its own below one
// init process. It builds the member's root, wires its network and keeps its components running; one SIGKILL
// of the init takes processes, mounts, network and packet filter away. What a member consists of is decided
// by package config, and when one starts or ends by package lifecycle.
package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
)

// Spec is all that an init must know; it is stored in the member's folder.
type Spec struct {
	Name       string             `json:"name"`
	Hub        bool               `json:"hub"`
	Dir        string             `json:"dir"`        // the member's folder of the state
	Kube       string             `json:"kube"`       // folder of the Kubernetes binaries
	Containerd string             `json:"containerd"` // folder of the containerd binaries
	CoreDNS    string             `json:"coreDNS"`    // folder of the DNS server
	Images     string             `json:"images"`     // folder of image archives
	Cgroup     string             `json:"cgroup"`     // the cluster's folder in every hierarchy
	Components []config.Component `json:"components"`
}

// Files of a member's folder.
const (
	specFile   = "init.json"
	pidFile    = "pid.json"
	statusFile = "status.json"
	initLog    = "init.log"
	// ConfigDir holds the files that the member sees as config.Configs.
	ConfigDir = "cfg"
	// VarDir is the member's /var, and LogDir its logs.
	VarDir = "var"
	LogDir = "var/log"
	// importedDir has an empty file for every image archive that was imported.
	importedDir = "var/lib/ringfleet-images"
)

// InitLog is the file that an init's own output goes to.
func InitLog(dir string) string { return filepath.Join(dir, initLog) }

// Phase is how far an init has come.
type Phase string

// The phases of an init.
const (
	Starting Phase = "starting" // a component is not ready yet
	Running  Phase = "running"  // every component was started
)

// Status is what an init reports in its member's folder.
type Status struct {
	PID        int               `json:"pid"` // of the init, as the host counts
	Phase      Phase             `json:"phase"`
	Waiting    string            `json:"waiting,omitempty"` // the component that start-up waits for
	Components []ComponentStatus `json:"components,omitempty"`
}

// ComponentStatus is one component's fate so far.
type ComponentStatus struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`                // inside the member; 0 while it does not run
	Exits    int    `json:"exits"`              // how often it ended
	LastExit string `json:"lastExit,omitempty"` // how it ended last
}

// ReadStatus returns what the init in dir reported last; the zero Status when it never did.
func ReadStatus(dir string) (Status, error) {
	var s Status
	err := readJSON(filepath.Join(dir, statusFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return Status{}, nil
	}
	return s, err
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	return nil
}

// writeJSON replaces file at once, so that a reader never sees half of it.
func writeJSON(file string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// ReadSpec returns what the member in dir was started with last.
func ReadSpec(dir string) (Spec, error) {
	var s Spec
	err := readJSON(filepath.Join(dir, specFile), &s)
	return s, err
}
