package sampling

import "math"

// unlikely is the least log probability that is told. It is finite so that JSON can hold it, and OpenAI's API says the
// same of a token that is out of the question.
const unlikely = -9999

// probabilities fills in the log probabilities of c, by the logits as they were given.
func (s *Sampler) probabilities(logits []float32, c *Choice) {
	s.kept = best(logits, max(s.top, 1), s.kept)
	top, total := s.kept[0].logit, 0.0 // there is one: c was chosen
	for _, l := range logits {
		if d := float64(top - l); d <= -floor {
			w, _ := weight(d)
			total += w
		}
	}
	log := math.Log(max(total, 1)) // it is 0 where the best logit is +Inf
	c.Logprob = logprob(logits[c.Token], top, log)
	s.ranked = s.ranked[:0]
	for _, k := range s.kept[:min(s.top, len(s.kept))] {
		s.ranked = append(s.ranked, Ranked{k.token, logprob(k.logit, top, log)})
	}
	c.Top = s.ranked
}

// logprob returns the log probability of the logit l, where log is the logarithm of the sum of all weights relative to top.
func logprob(l, top float32, log float64) float64 {
	if l == top {
		return -log
	}
	return max(float64(l)-float64(top)-log, unlikely)
}
