package scheduler

// choose makes the draws of a step.
func choose(draws []draw, logits [][]float32) {
	for i := range draws {
		d := &draws[i]
		if d.choice, d.err = d.run.sampler.Next(logits[d.item]); d.err == nil {
			d.run.sampler.Accept(d.choice.Token)
		}
	}
}
