// Package timeline computes rates and waits from the moments at which the tokens of answers came. It asks nobody and knows
// no clock; package peers notes the moments.
package timeline

import "time"

// Arrival is some tokens that came at once.
type Arrival struct {
	At     time.Time
	Tokens int
}

// Answer is one request's.
type Answer struct {
	Sent     time.Time
	Arrivals []Arrival // in order
	// Prompt, Completion and Cached are tokens as the engine counts them.
	Prompt, Completion, Cached int
}

// First is the time from the request to its first token, 0 without one.
func (a Answer) First() time.Duration {
	if len(a.Arrivals) == 0 {
		return 0
	}
	return a.Arrivals[0].At.Sub(a.Sent)
}

// begun and ended are when the first and the last token came.
func (a Answer) begun() time.Time { return a.Arrivals[0].At }
func (a Answer) ended() time.Time { return a.Arrivals[len(a.Arrivals)-1].At }

// Ran reports whether a token came after a time.
func (a Answer) Ran(t time.Time) bool { return len(a.Arrivals) > 0 && a.ended().After(t) }

// Firsts are the times to the first tokens, in seconds.
func Firsts(answers []Answer) []float64 {
	out := make([]float64, len(answers))
	for i, a := range answers {
		out[i] = a.First().Seconds()
	}
	return out
}

// Decode is how many tokens a second all answers got together while all of them ran: from the last first token to the first
// last one. Each answer's own rate within that time is counted and added, so that it does not matter whose token of a step
// came first. 0 when there was no such time.
func Decode(answers []Answer) float64 {
	var from, to time.Time
	for _, a := range answers {
		if len(a.Arrivals) == 0 {
			return 0
		}
		if from.IsZero() || a.begun().After(from) {
			from = a.begun()
		}
		if to.IsZero() || a.ended().Before(to) {
			to = a.ended()
		}
	}
	rate := 0.0
	for _, a := range answers {
		rate += a.rate(from, to)
	}
	return rate
}

// rate is how many tokens a second came after the first arrival in a time until the last one in it. An engine that sends
// less often than it makes tokens is taken at its own count.
func (a Answer) rate(from, to time.Time) float64 {
	var first, last time.Time
	tokens, all := 0, 0
	for _, r := range a.Arrivals {
		all += r.Tokens
		if r.At.Before(from) || r.At.After(to) {
			continue
		}
		if first.IsZero() {
			first = r.At
		} else {
			tokens += r.Tokens
		}
		last = r.At
	}
	if !last.After(first) {
		return 0
	}
	scale := 1.0
	if a.Completion > all {
		scale = float64(a.Completion) / float64(all)
	}
	return scale * float64(tokens) / last.Sub(first).Seconds()
}

// Throughput is how many tokens a second all answers got from the first request to the last token.
func Throughput(answers []Answer) float64 {
	var from, to time.Time
	tokens := 0
	for _, a := range answers {
		if len(a.Arrivals) == 0 {
			return 0
		}
		if from.IsZero() || a.Sent.Before(from) {
			from = a.Sent
		}
		if a.ended().After(to) {
			to = a.ended()
		}
		tokens += a.Completion
	}
	if !to.After(from) {
		return 0
	}
	return float64(tokens) / to.Sub(from).Seconds()
}

// WorstGap is the longest time between two arrivals of one answer that overlaps the time between from and to.
func WorstGap(answers []Answer, from, to time.Time) time.Duration {
	var worst time.Duration
	for _, a := range answers {
		for i := 1; i < len(a.Arrivals); i++ {
			before, after := a.Arrivals[i-1].At, a.Arrivals[i].At
			if after.After(from) && before.Before(to) {
				worst = max(worst, after.Sub(before))
			}
		}
	}
	return worst
}
