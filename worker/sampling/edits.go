package sampling

import (
	"github.com/ringfleet/ringfleet/worker/engine"
)

// The biases that rule out or force a token, as OpenAI's logit_bias does.
const forbids, forces = -100, 100

// edits are the changes to logits that a request asks for: bias, then penalties.
type edits struct {
	bias   []bias
	forced []engine.Token

	presence, frequency float32
	repetition          float32 // 1 is off

	prompt []engine.Token // not in seen yet
	seen   []occurrence   // tokens of prompt and output, where a penalty needs them
	at     map[engine.Token]int

	row, forcedRow []float32
}

type bias struct {
	token engine.Token
	add   float32
}

// occurrence is a token and how often the output has it.
type occurrence struct {
	token engine.Token
	count int
}

func newEdits(s engine.Sampling, prompt []engine.Token) edits {
	e := edits{presence: float32(s.PresencePenalty), frequency: float32(s.FrequencyPenalty), repetition: 1}
	if s.RepetitionPenalty > 0 {
		e.repetition = float32(s.RepetitionPenalty)
	}
	for t, b := range s.LogitBias {
		switch {
		case b >= forces:
			e.forced = append(e.forced, t)
		case b <= forbids:
			e.bias = append(e.bias, bias{t, nothing})
		default:
			e.bias = append(e.bias, bias{t, b})
		}
	}
	if e.penalises() {
		e.at = map[engine.Token]int{}
	}
	if e.repetition != 1 {
		e.prompt = prompt
	}
	return e
}

// read takes the prompt into seen, by the first choice and not before: what waits for its turn needs no memory for it.
func (e *edits) read() {
	for _, t := range e.prompt {
		e.occur(t)
	}
	e.prompt = nil
}

func (e *edits) penalises() bool { return e.presence != 0 || e.frequency != 0 || e.repetition != 1 }

// accept counts a token of the output.
func (e *edits) accept(t engine.Token) {
	if e.penalises() {
		e.read()
		e.occur(t).count++
	}
}

func (e *edits) occur(t engine.Token) *occurrence {
	i, ok := e.at[t]
	if !ok {
		i = len(e.seen)
		e.at[t] = i
		e.seen = append(e.seen, occurrence{token: t})
	}
	return &e.seen[i]
}

// apply returns the logits with the edits: the slice itself if there are none. Tokens outside of the vocabulary are
// passed over.
func (e *edits) apply(logits []float32) []float32 {
	e.read()
	if len(e.bias) == 0 && len(e.seen) == 0 {
		return logits
	}
	e.row = sized(e.row, len(logits))
	copy(e.row, logits)
	for _, b := range e.bias {
		if e.has(b.token) {
			e.row[b.token] += b.add
		}
	}
	for _, o := range e.seen {
		if e.has(o.token) {
			e.row[o.token] = e.penalise(e.row[o.token], o.count)
		}
	}
	return e.row
}

func (e *edits) has(t engine.Token) bool { return t >= 0 && int(t) < len(e.row) }

// penalise returns the logit l of a token that prompt or output have, the output count times.
func (e *edits) penalise(l float32, count int) float32 {
	if l > 0 {
		l /= e.repetition
	} else {
		l *= e.repetition
	}
	if count > 0 {
		l -= e.frequency*float32(count) + e.presence
	}
	return l
}

// only returns the logits of the forced tokens, with -Inf for all others; ok is false where none is forced.
func (e *edits) only(logits []float32) (row []float32, ok bool) {
	if len(e.forced) == 0 {
		return nil, false
	}
	e.forcedRow = sized(e.forcedRow, len(logits))
	for i := range e.forcedRow {
		e.forcedRow[i] = nothing
	}
	for _, t := range e.forced {
		if t >= 0 && int(t) < len(logits) {
			e.forcedRow[t] = logits[t]
		}
	}
	return e.forcedRow, true
}
