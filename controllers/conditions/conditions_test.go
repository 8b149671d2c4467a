package conditions_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/conditions"
)

func TestAConditionMovesItsTransitionTimeOnlyWithItsStatus(t *testing.T) {
	var list []metav1.Condition
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	conditions.Set(&list, 1, at, conditions.False(v1alpha1.Ready, v1alpha1.ReasonWorkersStarting, "0 of 2"))
	conditions.Set(&list, 2, at.Add(time.Minute), conditions.False(v1alpha1.Ready, v1alpha1.ReasonWorkersStarting, "1 of 2"))
	if len(list) != 1 || !list[0].LastTransitionTime.Time.Equal(at) || list[0].Message != "1 of 2" || list[0].ObservedGeneration != 2 {
		t.Errorf("got %+v, want the new message and generation and the old time", list)
	}
	conditions.Set(&list, 2, at.Add(time.Hour), conditions.True(v1alpha1.Ready, v1alpha1.ReasonServing, "2 of 2"))
	if !list[0].LastTransitionTime.Time.Equal(at.Add(time.Hour)) {
		t.Errorf("got %v, want the time of the change", list[0].LastTransitionTime)
	}
}

func TestACountAgreesWithItsWord(t *testing.T) {
	for n, want := range map[int32]string{0: "0 workers are left", 1: "1 worker is left", 2: "2 workers are left"} {
		if got := conditions.Count(n, "worker is left", "workers are left"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShortenKeepsWholeCharacters(t *testing.T) {
	for limit := 3; limit < 12; limit++ {
		got := conditions.Shorten(strings.Repeat("é", 10), limit)
		if len(got) > limit || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("limit %d gave %q", limit, got)
		}
	}
	if got := conditions.Shorten("short", 5); got != "short" {
		t.Errorf("got %q, want it as it is", got)
	}
}
