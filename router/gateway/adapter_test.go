package gateway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
)

// adapted is a rig with a model that has an adapter, and one of which only an adapter is served.
func adapted(plays ...play) *rig {
	r := newRig(clock.RealClock{}, plays...)
	r.SetState(NewState([]Model{
		{UID: "u1", Name: "org/m", ServedNames: []string{"org/m", "m", "org/tuned"}, Adapters: []string{"org/tuned"}, Created: time.Unix(7, 0)},
		{UID: "u2", Name: "alone", ServedNames: []string{"alone"}, Adapters: []string{"alone"}},
	}, Settings{FirstByte: time.Minute, Idle: time.Minute}))
	return r
}

func TestAnAdaptersNameAsksItsModelsWorkersForIt(t *testing.T) {
	r := adapted(says("hi"))
	ask := func(model string) (*Call, string) {
		w := r.do("POST", pathChat, `{"model":"`+model+`","messages":[{"role":"user","content":"x"}]}`)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"model":"`+model+`"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		return r.script.calls[len(r.script.calls)-1], r.logged.String()
	}
	plain, log := ask("m")
	if plain.ModelUID != "u1" || plain.Adapter != "" || strings.Contains(log, `"adapter"`) {
		t.Errorf("the model itself: %+v", plain)
	}
	tuned, log := ask("org/tuned")
	if tuned.ModelUID != "u1" || tuned.Adapter != "org/tuned" || !strings.Contains(log, `"adapter":"org/tuned"`) {
		t.Errorf("the adapter: %+v, logged %s", tuned, log)
	}
	if bytes.Equal(plain.Key, tuned.Key) {
		t.Error("a conversation with the model and one with its adapter have one key")
	}
	if got := r.figures.String(); got != "org/m ok,org/m ok" {
		t.Errorf("counted as %q", got)
	}
}

func TestEveryNameOfAConversationHoldsForOneAdapterOnly(t *testing.T) {
	for _, session := range []string{"s", ""} {
		a, b := affinityKey("a", session, leading("user", "x")), affinityKey("b", session, leading("user", "x"))
		if bytes.Equal(a, b) || !bytes.HasPrefix(a, []byte("adapter\x00a\x00")) || !bytes.Equal(a, affinityKey("a", session, leading("user", "x"))) {
			t.Errorf("%q and %q", a, b)
		}
	}
	if got := affinityKey("a", "s", &openai.ChatRequest{}); string(got) != "adapter\x00a\x00session\x00s" {
		t.Errorf("got %q", got)
	}
}

func TestAnAdapterIsListedUnderItsModel(t *testing.T) {
	r := adapted()
	const tuned = `{"id":"org/tuned","object":"model","created":7,"owned_by":"ringfleet","parent":"org/m"}`
	const want = `{"object":"list","data":[` +
		`{"id":"alone","object":"model","created":0,"owned_by":"ringfleet","parent":null},` +
		`{"id":"m","object":"model","created":7,"owned_by":"ringfleet"},` +
		`{"id":"org/m","object":"model","created":7,"owned_by":"ringfleet"},` + tuned + `]}`
	if got := r.do("GET", pathModels, "").Body.String(); got != want {
		t.Errorf("list %s", got)
	}
	if got := r.do("GET", "/v1/models/org%2Ftuned", "").Body.String(); got != tuned {
		t.Errorf("got %s", got)
	}
	w := r.do("POST", pathChat, `{"model":"org/tunned","messages":[{"role":"user","content":"x"}]}`)
	if w.Code != 404 || !strings.Contains(w.Body.String(), "org/tuned") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
