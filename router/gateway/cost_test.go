package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/router/openai"
)

func TestABodyGetsTheRoomThatItSaysWhenEnoughOfItHasCome(t *testing.T) {
	for name, c := range map[string]struct{ came, length, most, want int64 }{
		"a quarter has come":                  {25, 100, 1000, 101},
		"less than a quarter has come":        {25, 101, 1000, 50},
		"no length is said":                   {25, -1, 1000, 50},
		"more has come than was said":         {25, 20, 1000, 50},
		"no more than is allowed, and a byte": {600, -1, 1000, 1001},
	} {
		if got := room(c.came, c.length, c.most); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// deadlines is a response that counts how often its deadline was set, and to what.
type deadlines struct {
	*httptest.ResponseRecorder
	sets int
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.sets++
	d.last = t
	return nil
}

func TestADeadlineOfWritesIsMovedBeforeLessThanAWindowIsLeft(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	e := newEvents(clock, w, http.NewResponseController(w), func() {}, func() string { return "" })
	defer e.close()
	for range 100 {
		if err := e.send([]byte("data: {}\n\n")); err != nil {
			t.Fatal(err)
		}
		if left := w.last.Sub(clock.Now()); left < writeWindow || left > writeWindow+writeSlack {
			t.Fatalf("a write may take %s", left)
		}
		clock.SetTime(clock.Now().Add(20 * time.Millisecond))
	}
	if w.sets != 2 {
		t.Errorf("in two seconds of tokens the deadline was set %d times, want 2", w.sets)
	}
}

func TestPiecesAreJoinedAndASingleOneIsNotCopied(t *testing.T) {
	for _, list := range [][]string{nil, {""}, {"a"}, {"", "a", ""}, {"a", "b"}, {"a", "", "b", "c"}} {
		var p pieces
		for _, s := range list {
			p.add(s)
		}
		if got, want := p.String(), strings.Join(list, ""); got != want {
			t.Errorf("%q are joined to %q", list, got)
		}
	}
	text := strings.Repeat("x", 100)
	if n := testing.AllocsPerRun(10, func() {
		var p pieces
		p.add(text)
		if p.String() != text {
			t.Error("another text")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a single piece", n)
	}
}

func TestTheBodyOfAnAnswerFitsItsRoom(t *testing.T) {
	c := openai.Completion{ID: "chatcmpl-0123456789abcdef01234567", Model: "model", Created: 1_700_000_000}
	for name, choices := range map[string][]openai.Choice{
		"a text":         {{Text: strings.Repeat("All words. ", 100), Finish: openai.FinishStop}},
		"two of nothing": {{Finish: openai.FinishLength}, {Finish: openai.FinishLength}},
		"a thought":      {{Text: "yes", Reasoning: strings.Repeat("perhaps ", 100), Finish: openai.FinishStop}},
		"calls": {{ToolCalls: []openai.ToolCall{{ID: "call_1", Name: "f", Arguments: `{"a":"b"}`}, {ID: "call_2", Name: "g", Arguments: `{"a":"b"}`}},
			Finish: openai.FinishToolCalls}},
	} {
		room := c.BodySize(choices)
		if got := len(c.AppendBody(nil, choices, openai.Usage{Prompt: 1 << 30, Completion: 1 << 30, Cached: 1 << 30})); got > room || room > 2*got+400 {
			t.Errorf("%s: the body has %d bytes, its room %d", name, got, room)
		}
	}
}
