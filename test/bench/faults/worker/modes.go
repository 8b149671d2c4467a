package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// mode is what a fault of a worker is done to.
type mode struct {
	kind string // in figures; "" is the usual one
	says string
	spec rig.Spec
	// resumes: answers go on at another worker.
	resumes bool
	free    bool // the text is the model's
	streams int
	words   int
	// deaths and freezes are how often each is done in a whole run, and takes how long that lasts.
	deaths, freezes int
	takes           [2]time.Duration
}

// between is the time from one word to the next.
const between = 20 * time.Millisecond

// The modes: answers go on elsewhere; they don't; and the demo's model in the worker itself, where they do.
var (
	scripted = mode{spec: rig.Spec{Workers: 4, Plan: engine.Plan{First: between, Between: between}}, resumes: true, streams: 12, words: 100, deaths: 5, freezes: 2, takes: [2]time.Duration{26 * time.Second, 19 * time.Second}}
	settled  = mode{kind: "resume off", says: " (resume off)", streams: 12, words: 100, deaths: 3, freezes: 1, takes: [2]time.Duration{17 * time.Second, 10 * time.Second},
		spec: rig.Spec{Workers: 4, Plan: engine.Plan{First: between, Between: between}, Settings: func(s *discovery.Settings) { s.Resume = false }}}
	llama = mode{kind: "llama.cpp", says: " (llama.cpp in the worker)", spec: rig.Spec{Workers: 3, Llama: true}, resumes: true, free: true, streams: 6, words: 120,
		deaths: 1, freezes: 1, takes: [2]time.Duration{20 * time.Second, 24 * time.Second}}
)

// name is a figure's.
func (m mode) name(id, what string) string {
	if m.kind == "" {
		return id + " " + what
	}
	return fmt.Sprintf("%s %s, %s", id, what, m.kind)
}

// request asks for m's words. Each of its prompts is another one, and has about so many words of its own.
func (m mode) request(prompt int) client.Request {
	q := words(m.words, true)
	q.Free, q.Greedy = m.free, m.free
	if m.free {
		q.Timeout = 3 * time.Minute // a model on a busy machine is slow, and no failure
	}
	q.Prompt = fmt.Sprintf("Number %s. Write a very long story about a lighthouse keeper. %s", client.NewID(), strings.Repeat("The sea is wide. ", prompt/4))
	return q
}

// whole reports whether an answer is, with all its tokens. Of a scripted one the checker looks at each word besides.
func (m mode) whole(c *history.Client) bool { return good(c) && c.Completion == m.words }

// cut counts the answers that are not whole.
func (m mode) cut(all []history.Client) (n int) {
	for i := range all {
		if !m.whole(&all[i]) {
			n++
		}
	}
	return n
}
