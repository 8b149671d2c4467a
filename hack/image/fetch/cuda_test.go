package fetch

import (
	"slices"
	"strings"
	"testing"
)

func TestThePartForCUDAIsOfThePinnedLibrary(t *testing.T) {
	libraries, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(libraries.Spec, "@node-llama-cpp/linux-x64@")
	p := LlamaCUDA()
	if p.Spec != "@node-llama-cpp/linux-x64-cuda@"+version || len(p.Files) != 1 || p.Files[0].Name != LibraryCUDA {
		t.Errorf("got %+v, expected version %s", p, version)
	}
}

func TestNVIDIAsLibrariesComeWithTheirLicense(t *testing.T) {
	var libraries []string
	for _, p := range CUDA() {
		texts := 0
		for _, f := range p.Files {
			if f.Shared() {
				libraries = append(libraries, f.Name)
			} else if strings.HasPrefix(f.Name, "LICENSE.") {
				texts++
			}
		}
		if texts != 1 {
			t.Errorf("%s has %d licenses", p.Title, texts)
		}
	}
	slices.Sort(libraries)
	if !slices.Equal(libraries, []string{"libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13"}) {
		t.Errorf("got %q", libraries)
	}
}
