package names_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/names"
)

func TestAShortNameKeepsTheBeginningAndTellsWholesApart(t *testing.T) {
	for text, want := range map[string]string{
		"smollm2":                      "smollm2-",
		"IBM.Granite":                  "ibm-granite-",
		"1b":                           "m-1b-",
		"":                             "m-",
		strings.Repeat("a", 99):        strings.Repeat("a", 21) + "-",
		strings.Repeat("ab-", 33):      strings.Repeat("ab-", 7),
		"a." + strings.Repeat("b", 50): "a-" + strings.Repeat("b", 19) + "-",
	} {
		one, other := names.Short(text, "one", 30), names.Short(text, "other", 30)
		if len(one) != len(want)+8 || !strings.HasPrefix(one, want) || one == other {
			t.Errorf("%q becomes %s and %s, want %s and a hash each", text, one, other, want)
		}
	}
}

func TestALabelIsTheNameAsLongAsItFits(t *testing.T) {
	fits, long := strings.Repeat("a", 63), strings.Repeat("a.", 126)+"b"
	if got := names.Label(fits); got != fits {
		t.Errorf("got %s, want the name itself", got)
	}
	got := names.Label(long)
	if wrong := validation.IsValidLabelValue(got); wrong != nil || !strings.HasPrefix(got, "a.a.a.") || got == names.Label(long+"c") {
		t.Errorf("got %s: %v", got, wrong)
	}
}

func FuzzShort(f *testing.F) {
	for _, n := range []string{"m", "a--b", "1", "0-9.x", strings.Repeat("a-", 40) + "b", ""} {
		f.Add(n, 63)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 11 + (limit&0xff)%53
		got := names.Short(text, text, limit)
		if wrong := validation.IsDNS1035Label(got); wrong != nil || len(got) > limit {
			t.Errorf("%q within %d becomes %q: %v", text, limit, got, wrong)
		}
	})
}

func TestAModelThatNamesNoPoolMeansTheDefaultOne(t *testing.T) {
	m := &v1alpha1.InferenceModel{}
	if got := names.Pool(m); got != "default" {
		t.Errorf("got %s, want default", got)
	}
	m.Spec.PoolRef.Name = "gpu"
	if got := names.Pool(m); got != "gpu" {
		t.Errorf("got %s, want gpu", got)
	}
}
