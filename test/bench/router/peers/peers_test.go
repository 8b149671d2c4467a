package peers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/hack/engines/install"
)

func TestAPeerThatIsNotInstalledIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if present, absent := Present(Names()); slices.Contains(present, Nginx) || !slices.Equal(absent, []string{Nginx}) {
		t.Errorf("without it there are %v, and not %v", present, absent)
	}
	if err := os.WriteFile(filepath.Join(dir, "nginx"), []byte("#!/bin/sh\necho nginx version: nginx/1.22.1 >&2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if present, absent := Present(Names()); !slices.Equal(present, []string{install.Envoy, install.VLLMRouter, Nginx}) || len(absent) > 0 {
		t.Errorf("with it there are %v, and not %v", present, absent)
	}
	if got := Version(Nginx); got != "1.22.1" {
		t.Errorf("its version is %q", got)
	}
}
