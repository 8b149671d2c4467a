// Package bench writes what a benchmark has measured: as JSON for machines, as Markdown and as an SVG for people. It
// measures nothing and fails nothing; whether a figure holds its goal is part of the figure.
package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Figure is one measured value and the goal that it must hold.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Goal is the bound as people read it, such as "≤ 8"; empty for a figure without one.
	Goal  string `json:"goal"`
	Holds bool   `json:"holds"`

	bound float64
}

// written is a figure as it stands in a file.
type written Figure

// MarshalJSON writes null as the value where nothing was measured, which is NaN.
func (w written) MarshalJSON() ([]byte, error) {
	if !math.IsNaN(w.Value) {
		return json.Marshal(Figure(w))
	}
	return json.Marshal(struct {
		Figure
		Value *float64 `json:"value"`
	}{Figure: Figure(w)})
}

// AtMost is a figure that must not exceed goal.
func AtMost(name string, value float64, unit string, goal float64) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≤ %g", goal), Holds: value <= goal, bound: goal}
}

// AtLeast is a figure that must reach goal.
func AtLeast(name string, value float64, unit string, goal float64) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≥ %g", goal), Holds: value >= goal, bound: goal}
}

// Plain is a figure without a goal.
func Plain(name string, value float64, unit string) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Holds: true}
}

// Head says where and with what a benchmark ran.
type Head struct {
	Bench    string            `json:"bench"`
	Title    string            `json:"title"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
}

// Here describes this machine and this build.
func Here(name, title string) Head {
	h := Head{Bench: name, Title: title,
		Machine:  map[string]string{"os": runtime.GOOS + "/" + runtime.GOARCH, "cpus": fmt.Sprint(runtime.NumCPU())},
		Versions: map[string]string{"go": runtime.Version()},
	}
	if v := field("/proc/cpuinfo", "model name"); v != "" {
		h.Machine["cpu"] = v
	}
	if v := field("/proc/meminfo", "MemTotal"); v != "" {
		h.Machine["memory"] = v
	}
	if v, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Machine["kernel"] = strings.TrimSpace(string(v))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "k8s.io/api", "sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "github.com/hybridgroup/yzma":
				h.Versions[d.Path] = d.Version
			}
		}
	}
	return h
}

// field returns the value of the first line "key : value" of a file in /proc.
func field(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func place(h Head) string {
	return fmt.Sprintf("%s CPUs (%s), %s, kernel %s, %s", h.Machine["cpus"], h.Machine["cpu"], h.Machine["memory"], h.Machine["kernel"], h.Versions["go"])
}

func short(v float64) string {
	if math.IsNaN(v) {
		return "not measured"
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}

func verdict(f Figure) string {
	switch {
	case f.Goal == "":
		return ""
	case f.Holds:
		return "yes"
	}
	return "no"
}
