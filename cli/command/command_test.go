package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flag"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func set(t v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.Reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: status, Reason: string(reason), Message: message}
}

func pod(name, node string, gate corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelModelUID: "u1"},
			CreationTimestamp: metav1.NewTime(now.Add(-90 * time.Second))},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: v1alpha1.GateInRing, Status: gate}}},
	}
}

func TestStatusSaysWhyAModelIsNotReady(t *testing.T) {
	m := v1alpha1.InferenceModel{ObjectMeta: metav1.ObjectMeta{Name: "tiny", UID: "u1"},
		Spec: v1alpha1.InferenceModelSpec{PoolRef: v1alpha1.LocalName{Name: "default"}}}
	m.Status = v1alpha1.InferenceModelStatus{
		InRing: "1/2", ServedNames: []string{"tiny", "org/Tiny"}, URL: "http://default-router.fleet.svc/v1",
		Conditions: []metav1.Condition{
			set(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.ReasonWorkersStarting, "1 of 2 workers in the ring: pod tiny-1 on node n2 is Loading (62 %)"),
			set(v1alpha1.WeightsCached, metav1.ConditionFalse, v1alpha1.ReasonWeightsTruncated, "tiny.gguf has 10 bytes, its header says 20"),
			set(v1alpha1.RouterReady, metav1.ConditionTrue, v1alpha1.ReasonRoutersReady, "2 of 2 routers answer"),
			set(v1alpha1.Progressing, metav1.ConditionTrue, v1alpha1.ReasonWorkersStarting, "1 worker is on its way"),
		},
		Workers: []v1alpha1.WorkerProgress{{Name: "tiny-1", Stage: v1alpha1.StageLoading, Percent: ptr.To[int32](62), Message: "reads tensors"}},
	}
	leaving := pod("tiny-2", "n1", corev1.ConditionTrue)
	leaving.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	f := fleet{namespace: "fleet", models: []v1alpha1.InferenceModel{m}, workers: []corev1.Pod{pod("tiny-0", "n1", corev1.ConditionTrue), pod("tiny-1", "n2", corev1.ConditionFalse), leaving},
		routers: []v1alpha1.InferenceRouter{{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: v1alpha1.InferenceRouterStatus{Ready: "2/2",
			Conditions: []metav1.Condition{set(v1alpha1.Ready, metav1.ConditionTrue, v1alpha1.ReasonRouting, "2 of 2")}}}},
	}
	var out bytes.Buffer
	printFleet(&out, f, now)
	golden(t, "status.txt", out.String())
}

func TestStatusOfAnUnknownModelNamesThoseThereAre(t *testing.T) {
	_, err := pick([]v1alpha1.InferenceModel{{ObjectMeta: metav1.ObjectMeta{Name: "tiny"}}}, "tny", "fleet")
	if err == nil || !strings.Contains(err.Error(), "there are tiny") {
		t.Errorf("got %v", err)
	}
}

func node(ready corev1.ConditionStatus, cpu, memory string) corev1.Node {
	return corev1.Node{Status: corev1.NodeStatus{
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
	}}
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	good := seen{namespace: "fleet", serverVersion: "v1.37.2", nodes: []corev1.Node{node(corev1.ConditionTrue, "1", "4Gi")},
		apiInstalled: true, managers: 1, mayCreate: true}
	for name, c := range map[string]struct {
		change func(*seen)
		want   string // a line; "" means no FAIL
	}{
		"a good cluster":                            {func(*seen) {}, ""},
		"an old version":                            {func(s *seen) { s.serverVersion = "v1.33.4" }, "FAIL  Kubernetes v1.33.4 is older than 1.35"},
		"a version of a distribution":               {func(s *seen) { s.serverVersion = "v1.37.0-eks-abc" }, ""},
		"the first that will do, of a distribution": {func(s *seen) { s.serverVersion = "v1.35.0-eks-abc" }, ""},
		"a pre-release of a later one":              {func(s *seen) { s.serverVersion = "v1.38.0-alpha.1" }, ""},
		"nodes that are too small":                  {func(s *seen) { s.nodes = []corev1.Node{node(corev1.ConditionTrue, "250m", "4Gi")} }, "FAIL  none of 1 node is"},
		"a node that is not Ready":                  {func(s *seen) { s.nodes = []corev1.Node{node(corev1.ConditionFalse, "1", "4Gi")} }, "FAIL  none of 1 node is"},
		"nodes that can't be seen":                  {func(s *seen) { s.nodes, s.nodesHidden = nil, true }, ""},
		"no API":                                    {func(s *seen) { s.apiInstalled = false }, "FAIL  the API inference.ringfleet.dev/v1alpha1 is not installed"},
		"no manager":                                {func(s *seen) { s.managers = 0 }, "FAIL  no manager pod is Ready"},
		"a user without rights":                     {func(s *seen) { s.mayCreate = false }, "FAIL  you may not create InferenceModels in namespace fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			c.change(&s)
			var out bytes.Buffer
			err := printFindings(&out, judge(s))
			if (err != nil) != (c.want != "") || !strings.Contains(out.String(), c.want) {
				t.Errorf("got %v and\n%s", err, out.String())
			}
		})
	}
}

func talkTo(t *testing.T, answer string, status int) (*talk, *[]string) {
	t.Helper()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		bodies = append(bodies, b.String())
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return newTalk(server.URL+"/v1", "tiny", chatOptions{quiet: true, temperature: 0}, clock.RealClock{}), &bodies
}

const twoChunks = ": keep-alive\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"Pa\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"ris\"}}]}\n\n"

func TestAConversationCarriesEarlierTurns(t *testing.T) {
	talk, bodies := talkTo(t, twoChunks+"data: [DONE]\n\n", http.StatusOK)
	var out bytes.Buffer
	s := Streams{In: strings.NewReader("capital of France?\nsure?\n\n"), Out: &out, Err: &out}
	if err := talk.converse(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if out.String() != "Paris\nParis\n" {
		t.Errorf("printed %q", out.String())
	}
	if len(*bodies) != 2 || !strings.Contains((*bodies)[1], `{"role":"assistant","content":"Paris"},{"role":"user","content":"sure?"}`) {
		t.Errorf("sent %q", *bodies)
	}
}

func TestAConversationGoesOnAfterAnErrorWithoutTheTurnThatFailed(t *testing.T) {
	answers := []string{
		twoChunks + "data: [DONE]\n\n",
		twoChunks + "data: {\"error\":{\"message\":\"worker lost\",\"code\":\"worker_lost\"}}\n\n",
		twoChunks + "data: [DONE]\n\n",
	}
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		fmt.Fprint(w, answers[len(bodies)])
		bodies = append(bodies, b.String())
	}))
	t.Cleanup(server.Close)
	talk := newTalk(server.URL+"/v1", "tiny", chatOptions{quiet: true}, clock.RealClock{})
	var out, told bytes.Buffer
	err := talk.converse(t.Context(), Streams{In: strings.NewReader("one?\ntwo?\nthree?\n\n"), Out: &out, Err: &told})
	if err != nil || told.String() != "ringfleet: ask model tiny: worker lost (worker_lost)\n" {
		t.Errorf("ended with %v and told %q", err, told.String())
	}
	want := `[{"role":"user","content":"one?"},{"role":"assistant","content":"Paris"},{"role":"user","content":"three?"}]`
	if len(bodies) != 3 || !strings.Contains(bodies[2], want) {
		t.Errorf("sent %q, want %s last", bodies, want)
	}
}

func TestAConversationEndsWithItsContext(t *testing.T) {
	talk, bodies := talkTo(t, twoChunks, http.StatusOK)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := talk.converse(ctx, Streams{In: strings.NewReader("one?\ntwo?\n"), Out: &out, Err: &out})
	if !errors.Is(err, context.Canceled) || len(*bodies) != 0 {
		t.Errorf("got %v after %d requests", err, len(*bodies))
	}
}

func TestAnAnswerThatIsCutOffIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"the stream ends":          {twoChunks, 200, "ended without [DONE]"},
		"an error in the middle":   {twoChunks + "data: {\"error\":{\"message\":\"worker lost\",\"code\":\"worker_lost\"}}\n\n", 200, "worker lost (worker_lost)"},
		"a refusal":                {`{"error":{"message":"no such model"}}`, 404, "404 Not Found: no such model"},
		"something that is not us": {"<html>", 502, "no OpenAI error object"},
	} {
		t.Run(name, func(t *testing.T) {
			talk, _ := talkTo(t, c.answer, c.status)
			var out bytes.Buffer
			err := talk.turn(context.Background(), Streams{Out: &out, Err: &out}, "hi")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestACountAgreesWithItsWord(t *testing.T) {
	if got := figures(1, 120*time.Millisecond, 0); got != "[1 token, first after 120 ms]" {
		t.Error(got)
	}
	if got := judgeManager(seen{managers: 2}); got.text != "2 manager pods are Ready" {
		t.Error(got.text)
	}
}

func TestFiguresSayHowFastAnAnswerCame(t *testing.T) {
	if got := figures(11, 120*time.Millisecond, 100*time.Millisecond); got != "[11 tokens, first after 120 ms, then 100 tokens/s]" {
		t.Error(got)
	}
}

func TestChatAsksForTheModelItselfNotForAnAdapter(t *testing.T) {
	m := v1alpha1.InferenceModel{Spec: v1alpha1.InferenceModelSpec{Adapters: []v1alpha1.Adapter{{Name: "legal", File: "legal.gguf"}}}}
	for name, c := range map[string]struct {
		served      []string
		asked, want string
	}{
		"the first name that is the model's own": {[]string{"legal", "tiny"}, "", "tiny"},
		"an adapter that was asked for":          {[]string{"tiny", "legal"}, "legal", "legal"},
		"nothing where only adapters are left":   {[]string{"legal"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m.Status.ServedNames = c.served
			got, err := servedName(&m, c.asked)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q (%v), expected %q", got, err, c.want)
			}
		})
	}
}
