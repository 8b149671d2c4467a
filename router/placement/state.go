package placement

import (
	"math"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

const (
	// What is believed of a model before it has been seen at work: tokens of a prompt in a second, seconds from one token
	// of an answer to the next, tokens of an answer, bytes of a token.
	defaultRate   = 4000
	defaultStep   = 1. / 30
	defaultAnswer = 256
	defaultBytes  = 4
	// usualPrompt is taken for prompts of which nothing is known, in tokens.
	usualPrompt = 512

	// A pace is measured on as many tokens as this at least, as a short prompt's time is not that of computing it. All
	// that came before weighs at most paceMemory tokens, a report's rate reportWeight, and the mean of the model's other
	// workers paceBase. What is not measured again counts half after paceHalf, so that a worker which was slow and gets
	// nothing for it is tried again.
	leastSample  = 512
	paceMemory   = 32768
	reportWeight = 2048
	paceBase     = 1024
	paceHalf     = time.Minute
	// mostChange is how many times faster or slower than believed one measurement may say that an instance is.
	mostChange = 4
	// Paces beyond these, in seconds a token, are errors of measurement.
	fastest, slowest = 1e-7, 10.

	stepMemory, stepBase, leastAnswer = 16, 1, 16

	bytesMemory, bytesBase = 65536, 256
	// A request with fewer or more bytes a token than these has other things than text in it, such as pictures.
	fewestBytes, mostBytes = 1, 16

	answerMemory, answerBase = 64, 4

	shareMemory, shareBase = 4096, 8
	// alone is the share of the requests above which a router is taken for the only one.
	alone = 0.95

	// ranks are the places of the ring's walk for which it is learnt how much more of a prompt is there than the index
	// knows; later ones have none.
	ranks                = 4
	hintMemory, hintBase = 64, 16
	// slack is how many tokens more than the index thinks may be there for no reason but different sizes of blocks.
	slack = 32

	// compareEvery is how often the workers of a model are compared with each other.
	compareEvery = time.Second
)

// state is what is known of the work of a model's workers. It stays while views come and go.
type state struct {
	computed computed // has its own lock

	mu     sync.Mutex // guards what follows, lives and tickets too; held while a policy chooses, never while another package is called
	lives  map[Process]*live
	last   int // place of the worker that got the latest request; -1 before
	aged   time.Time
	pace   float64 // seconds a token: the mean of the workers', believed of those that have not been measured
	bytes  average // of a prompt's token
	answer average // tokens
	others
	hints [ranks]average
}

func newState() *state {
	return &state{lives: map[Process]*live{}, last: -1, pace: 1. / defaultRate}
}

// live returns what is known of an instance, from nothing where it is met for the first time.
func (s *state) live(of Process, now time.Time) *live {
	l := s.lives[of]
	if l == nil {
		l = &live{at: now, pace: s.pace, order: &sync.Mutex{}}
		s.lives[of] = l
	}
	return l
}

// age lets measurements fade, and reports whether it is time to compare the workers again. It does so at most once in
// compareEvery.
func (s *state) age(now time.Time) bool {
	passed := now.Sub(s.aged)
	switch {
	case s.aged.IsZero():
		s.aged = now
		return true
	case passed < compareEvery:
		return false
	}
	s.aged = now
	fade := math.Exp2(-passed.Seconds() / paceHalf.Seconds())
	for _, l := range s.lives {
		l.learnt.weight *= fade
	}
	return true
}

// compare gives each worker of which little is known the mean of the others, and finds those that are slower than these.
// It ends a round of reports.
func (s *state) compare(now time.Time) {
	s.others.close()
	var all, speed average
	for _, l := range s.lives {
		all.add(l.learnt.value, l.learnt.weight, math.Inf(1))
		if l.step.weight > 0 {
			speed.add(1/l.step.value, 1, math.Inf(1))
		}
	}
	s.pace = 1. / defaultRate
	if all.weight > 0 {
		s.pace = all.value
	}
	for _, l := range s.lives {
		l.slow = l.step.weight > 0 && 1/l.step.value < speed.value/2
		s.believe(l, now)
	}
}

// believe makes of what is measured what is believed.
func (s *state) believe(l *live, now time.Time) {
	l.drain(now)
	l.pace = l.learnt.or(s.pace, paceBase)
}

// bytesPerToken is the length of a prompt's token.
func (s *state) bytesPerToken() float64 { return s.bytes.or(defaultBytes, bytesBase) }

// learn takes in what a request's end says.
func (s *state) learn(t *Ticket, r Result, now time.Time) {
	answer := float64(r.CompletionTokens) / float64(t.choices) // choices are made side by side
	s.answer.add(answer, 1, answerMemory)
	if !t.first.IsZero() && answer >= leastAnswer {
		t.live.pause(now.Sub(t.first).Seconds() / (answer - 1))
	}
	if r.PromptTokens == 0 {
		return
	}
	prompt := float64(r.PromptTokens)
	if per := float64(t.bytes) / prompt; !t.resumed && per >= fewestBytes && per <= mostBytes {
		s.bytes.add(per, prompt, bytesMemory)
	}
	cached := min(float64(r.CachedTokens), prompt)
	t.live.counts = t.live.counts || cached > 0
	s.timed(t, prompt-cached, now)
	if thought := t.part * prompt; t.rank < ranks && len(t.chain) > 0 && thought < prompt {
		more := min(1, max(0, cached-thought-slack)/(prompt-thought))
		s.hints[t.rank].add(more, 1-thought/prompt, hintMemory)
	}
}

// timed learns from the time to the first token of a request of which so many tokens had to be computed. Where other
// routers send requests too, what they have sent unseen would count as slowness: then a rate that is reported says more.
func (s *state) timed(t *Ticket, computed float64, now time.Time) {
	if t.first.IsZero() || t.queued || t.live.rated && s.exist() {
		return
	}
	took, done := t.first.Sub(t.decision.At).Seconds(), t.ahead+computed
	if took > 0 && done >= leastSample {
		t.live.learn(took/done, done)
		s.believe(t.live, now)
	}
}

// blocks is how many blocks of the index a number of tokens is.
func (s *state) blocks(tokens int64) int {
	return int(float64(tokens) * s.bytesPerToken() / prefix.BlockBytes)
}
