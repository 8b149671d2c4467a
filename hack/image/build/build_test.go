package build

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/image/recipe"
)

func TestNothingOfTheMachineGoesIntoABinary(t *testing.T) {
	for _, p := range recipe.Programs() {
		t.Run(p.Name, func(t *testing.T) {
			args := arguments(p, "1.2.3", "/out/"+p.Name)
			for _, want := range []string{"-trimpath", "-buildvcs=false", "-s -w -buildid= -X main.version=1.2.3", p.Package} {
				if !slices.Contains(args, want) {
					t.Errorf("no %q in %q", want, args)
				}
			}
			if slices.Contains(args, "netgo,osusergo") != p.CGO {
				t.Errorf("tags of %s: %q", p.Name, args)
			}
		})
	}
}

func TestAnUnknownTargetIsRefusedWithTheKnownOnes(t *testing.T) {
	var out bytes.Buffer
	_, err := (&Builder{Dir: t.TempDir(), Out: &out}).Build(t.Context(), "gateway")
	if err == nil || !strings.Contains(err.Error(), "image of gateway: no such target; choose from [manager router worker smollm2 worker-cuda]") {
		t.Errorf("error %v", err)
	}
}

func TestTheImageForGPUsIsBuiltOnlyWhereItIsNamed(t *testing.T) {
	if slices.Contains(Targets(), WorkerCUDA) || !slices.Contains(OnDemand(), WorkerCUDA) {
		t.Errorf("targets %v, on demand %v", Targets(), OnDemand())
	}
}
