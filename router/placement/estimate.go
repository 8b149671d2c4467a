package placement

// Estimate is about how many tokens a request takes, those of its prompt and of its answers. Of a model that the board does
// not have, it is what would be believed of one that has just come.
func (b *Board) Estimate(q *Request) int64 {
	s := newState()
	if v := b.View(q.ModelUID); v != nil {
		s = v.state
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.ask(q)
	return int64(a.tokens + a.answer)
}
