package inferencemodel

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

func model(name, uid string, born int64, aliases ...string) v1alpha1.InferenceModel {
	return v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(uid), CreationTimestamp: metav1.Unix(born, 0)},
		Spec:       v1alpha1.InferenceModelSpec{Aliases: aliases},
	}
}

// having gives m adapters.
func having(m v1alpha1.InferenceModel, adapters ...string) v1alpha1.InferenceModel {
	for _, name := range adapters {
		m.Spec.Adapters = append(m.Spec.Adapters, v1alpha1.Adapter{Name: name, File: name + ".gguf"})
	}
	return m
}

func TestWhoHasWhichName(t *testing.T) {
	going := model("old", "1", 1, "x")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	for name, c := range map[string]struct {
		m      v1alpha1.InferenceModel
		others []v1alpha1.InferenceModel
		want   string
	}{
		"alone it has all names, each once":        {model("m", "2", 2, "x", "x", "m"), nil, "[m x] []"},
		"the older object has the name":            {model("m", "2", 2, "x"), []v1alpha1.InferenceModel{model("old", "9", 1, "x")}, "[m] [{x old}]"},
		"the younger object does not":              {model("m", "2", 2, "x"), []v1alpha1.InferenceModel{model("new", "1", 3, "x")}, "[m x] []"},
		"of one age the smaller UID has it":        {model("m", "2", 2, "x"), []v1alpha1.InferenceModel{model("peer", "1", 2, "x")}, "[m] [{x peer}]"},
		"a model that is being deleted has none":   {model("m", "2", 2, "x"), []v1alpha1.InferenceModel{going}, "[m x] []"},
		"an object's name is a claim like another": {model("m", "2", 2), []v1alpha1.InferenceModel{model("old", "1", 1, "m")}, "[] [{m old}]"},
		"adapters have names after the aliases":    {having(model("m", "2", 2, "x"), "b", "x", "a"), nil, "[m x b a] []"},
		"an adapter's name is a claim like another": {having(model("m", "2", 2), "x"), []v1alpha1.InferenceModel{model("old", "1", 1, "x")},
			"[m] [{x old}]"},
		"an older model's adapter has its name": {model("m", "2", 2, "x"), []v1alpha1.InferenceModel{having(model("old", "1", 1), "x")}, "[m] [{x old}]"},
		"a younger model's adapter does not":    {having(model("m", "2", 2), "x"), []v1alpha1.InferenceModel{having(model("new", "1", 3), "x")}, "[m x] []"},
		"itself among the others is no rival":   {model("m", "2", 2), []v1alpha1.InferenceModel{model("m", "2", 2)}, "[m] []"},
	} {
		own, lost := shareNames(&c.m, c.others)
		if got := fmt.Sprintf("%v %v", own, lost); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
