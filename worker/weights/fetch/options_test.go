package fetch

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func bound(t *testing.T, env map[string]string, args ...string) Options {
	t.Helper()
	o := Options{Getenv: func(k string) string { return env[k] }}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.Bind(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAFlagWinsOverItsVariable(t *testing.T) {
	o := bound(t, map[string]string{"RINGFLEET_WEIGHTS_URI": "hf://a/b", "RINGFLEET_WEIGHTS_CACHE_DIR": "/c", "RINGFLEET_WEIGHTS_INSTANCE_ROLE": "true",
		"RINGFLEET_WEIGHTS_ALLOW": "*.gguf, x/*"}, "--weights-uri=hf://c/d", "--weights-connections=3")
	if o.URI != "hf://c/d" || o.CacheDir != "/c" || o.Connections != 3 || !o.InstanceRole || o.Validate() != nil {
		t.Errorf("got %+v, %v", o, o.Validate())
	}
	if r := o.Request("m.gguf", "d"); r.URI != o.URI || r.File != "m.gguf" || r.Digest != "d" || strings.Join(r.Allow, "|") != "*.gguf|x/*" {
		t.Errorf("got %+v", r)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	if o := bound(t, nil); o.Validate() != nil {
		t.Error(o.Validate())
	}
}

func TestSettingsThatCantWorkAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"a URI of no form":              {nil, []string{"--weights-uri=hf://a b"}, "--weights-uri"},
		"a relative cache":              {nil, []string{"--weights-cache-dir=x"}, "--weights-cache-dir"},
		"a negative size":               {nil, []string{"--weights-cache-gibibytes=-1"}, "--weights-cache-gibibytes -1"},
		"no connections":                {nil, []string{"--weights-connections=0"}, "--weights-connections 0"},
		"a network that is none":        {nil, []string{"--weights-allow-networks=lan"}, "--weights-allow-networks lan"},
		"a relative root":               {nil, []string{"--weights-file-root=x"}, "--weights-file-root"},
		"a variable that is no number":  {map[string]string{"RINGFLEET_WEIGHTS_CONNECTIONS": "many"}, nil, "RINGFLEET_WEIGHTS_CONNECTIONS"},
		"a variable that is no boolean": {map[string]string{"RINGFLEET_WEIGHTS_INSTANCE_ROLE": "si"}, nil, "RINGFLEET_WEIGHTS_INSTANCE_ROLE"},
	} {
		t.Run(name, func(t *testing.T) {
			o := bound(t, c.env, c.args...)
			if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCertificatesThatCantBeReadAreNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, empty + ".gone"} {
		if _, err := New(Options{CacheDir: "/c", Connections: 1, CAFile: path}, newSkipping()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
}
