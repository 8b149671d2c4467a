package fetch

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/worker/weights/egress"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Options are the settings of a Fetcher. Each with a flag is also an environment variable: --weights-cache-dir is
// RINGFLEET_WEIGHTS_CACHE_DIR. The flag wins. Credentials are in the environment only, never in a flag: HF_TOKEN,
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the variables that a workload identity sets.
type Options struct {
	// URI is where the weights are; empty: they lie in VolumeDir, and nothing is fetched.
	URI string
	// Allow are patterns of the names that are looked at, separated by commas; empty: all.
	Allow string
	// CacheDir is the folder that fetched files are kept in, shared by all that name it.
	CacheDir string
	// CacheGibibytes bounds the cache; 0: only the disk bounds it.
	CacheGibibytes int
	// Connections is how many ranges of a file are fetched at a time.
	Connections int
	// AllowNetworks may be fetched from besides public addresses: networks such as 10.0.0.0/8, separated by commas.
	// Whoever may create a model can make a worker read from what it holds.
	AllowNetworks string
	// CAFile holds certificates in PEM that are trusted besides the system's.
	CAFile string
	// Link is the path of a symbolic link that leads to the weights once they are there; empty: none.
	Link string
	// RegistryConfig is a Docker config.json with credentials for oci; empty: none. Helper programs that it names are not run.
	RegistryConfig string
	// PlainRegistries are registries that oci speaks plain HTTP to: hosts with ports, separated by commas.
	PlainRegistries string
	// InstanceRole lets s3 use the node's role where the pod has neither keys nor an identity. Whoever may create a model can
	// then read with the node's rights.
	InstanceRole bool
	// FileRoot is the folder that file paths must lie in.
	FileRoot string

	// VolumeDir is where the folder of a pvc is mounted. It has no flag: the agent's --weights-dir says it.
	VolumeDir string
	// Getenv reads the environment; nil: os.Getenv.
	Getenv func(string) string

	bad []error // variables that could not be read
}

// Bind adds the flags to f. Defaults come from the environment.
func (o *Options) Bind(f *flag.FlagSet) {
	getenv := o.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	text := func(p *string, name, fallback, usage string) {
		if e := getenv(variable(name)); e != "" {
			fallback = e
		}
		f.StringVar(p, name, fallback, usage)
	}
	number := func(p *int, name string, fallback int, usage string) {
		if e := getenv(variable(name)); e != "" {
			n, err := strconv.Atoi(e)
			if err != nil {
				o.bad = append(o.bad, fmt.Errorf("%s: %q is not a whole number", variable(name), e))
			} else {
				fallback = n
			}
		}
		f.IntVar(p, name, fallback, usage)
	}
	text(&o.URI, "weights-uri", "", "where the weights are: hf://, s3://, https://, oci://, pvc:// or file:// (default: in --weights-dir)")
	text(&o.Allow, "weights-allow", "", "patterns of names that are looked at, separated by commas")
	text(&o.CacheDir, "weights-cache-dir", "/cache", "folder that fetched weights are kept in")
	number(&o.CacheGibibytes, "weights-cache-gibibytes", 0, "size of that folder (0: the disk's)")
	number(&o.Connections, "weights-connections", 8, "ranges of a file that are fetched at a time")
	text(&o.AllowNetworks, "weights-allow-networks", "", "private networks that weights may be fetched from, such as 10.0.0.0/8")
	text(&o.CAFile, "weights-ca-file", "", "certificates that are trusted besides the system's")
	text(&o.Link, "weights-link", "", "symbolic link that leads to the weights once they are there")
	text(&o.RegistryConfig, "weights-registry-config", "", "Docker config.json with credentials for oci://")
	text(&o.PlainRegistries, "weights-plain-registries", "", "registries that oci:// speaks plain HTTP to")
	text(&o.FileRoot, "weights-file-root", "/weights", "folder that file:// paths must lie in")
	role := false
	if e := getenv(variable("weights-instance-role")); e != "" {
		var err error
		if role, err = strconv.ParseBool(e); err != nil {
			o.bad = append(o.bad, fmt.Errorf("%s: %q is neither true nor false", variable("weights-instance-role"), e))
		}
	}
	f.BoolVar(&o.InstanceRole, "weights-instance-role", role, "let s3:// use the node's role where the pod has no keys and no identity")
}

func variable(name string) string {
	return "RINGFLEET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Validate returns every setting that can't work, by its flag and value.
func (o *Options) Validate() error {
	errs := append([]error(nil), o.bad...)
	bad := func(flag string, value any, want string) {
		errs = append(errs, fmt.Errorf("--%s %v: want %s", flag, value, want))
	}
	if o.URI != "" {
		if _, err := source.Parse(o.URI); err != nil {
			errs = append(errs, fmt.Errorf("--weights-uri: %w", err))
		}
	}
	if !filepath.IsAbs(o.CacheDir) {
		bad("weights-cache-dir", o.CacheDir, "an absolute path")
	}
	if o.FileRoot != "" && !filepath.IsAbs(o.FileRoot) {
		bad("weights-file-root", o.FileRoot, "an absolute path")
	}
	if o.CacheGibibytes < 0 || o.CacheGibibytes > 1<<20 {
		bad("weights-cache-gibibytes", o.CacheGibibytes, "0 to 1048576")
	}
	if o.Connections < 1 || o.Connections > 64 {
		bad("weights-connections", o.Connections, "1 to 64")
	}
	if _, err := egress.Networks(o.AllowNetworks); err != nil {
		bad("weights-allow-networks", o.AllowNetworks, "networks such as 10.0.0.0/8")
	}
	return errors.Join(errs...)
}

// Request returns the request that the options describe. file and digest may be empty.
func (o *Options) Request(file, digest string) Request {
	return Request{URI: o.URI, File: file, Digest: digest, Allow: commas(o.Allow), Link: o.Link}
}
