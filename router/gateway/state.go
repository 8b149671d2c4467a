package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/router/openai"
)

// Model is one model as clients see it.
type Model struct {
	UID string
	// Name is the one under which it is counted and logged.
	Name string
	// ServedNames are all that clients may ask for, and Adapters those of them that ask for an adapter of the model.
	ServedNames []string
	Adapters    []string
	Created     time.Time
}

// served is what a name stands for.
type served struct {
	Model
	adapter string // its name; empty for the model itself
	listed  openai.Model
}

// State is what requests are judged by at one moment. It never changes.
type State struct {
	models map[string]served
	list   []openai.Model // sorted by id

	settings Settings
}

// Settings are what requests of all models have in common.
type Settings struct {
	// FirstByte is how long a worker may take until the first text, Idle how long between two.
	FirstByte, Idle time.Duration
	// Tiers are the classes of requests, DefaultTier the name of the one for those that name none.
	Tiers       []Tier
	DefaultTier string
	// TrustHeaders believes what a request's headers say of its tier and tenant.
	TrustHeaders bool
	// Isolate keeps what workers have cached of one tenant's prompts from others.
	Isolate bool
}

// Tier is a class of requests. Greater priorities go first.
type Tier struct {
	Name     string
	Priority int32
}

// NewState returns the state with these models and settings.
func NewState(models []Model, settings Settings) *State {
	s := &State{models: map[string]served{}, settings: settings}
	for _, m := range models {
		for _, name := range m.ServedNames {
			s.models[name] = m.as(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		s.list = append(s.list, s.models[name].listed)
	}
	return s
}

// as is what one of the model's names stands for.
func (m Model) as(name string) served {
	out := served{Model: m, listed: openai.Model{ID: name}}
	if !m.Created.IsZero() {
		out.listed.Created = m.Created.Unix()
	}
	if slices.Contains(m.Adapters, name) {
		out.adapter, out.listed.Adapter = name, true
		if !slices.Contains(m.Adapters, m.Name) { // else no client can ask for the model itself
			out.listed.Parent = m.Name
		}
	}
	return out
}

// find returns what is served under name.
func (h *Handler) find(name string) (served, *State, error) {
	s := h.state.Load()
	if s == nil {
		return served{}, nil, ErrNotSynced
	}
	m, ok := s.models[name]
	if !ok {
		return served{}, nil, &unknownModelError{name: name, near: s.near(name)}
	}
	return m, s, nil
}

// near returns at most three served names that name may have meant, the likeliest first.
func (s *State) near(name string) []string {
	type guess struct {
		id   string
		cost int
	}
	var guesses []guess
	for _, m := range s.list {
		if cost, ok := resemble(name, m.ID); ok {
			guesses = append(guesses, guess{m.ID, cost})
		}
	}
	slices.SortStableFunc(guesses, func(a, b guess) int { return cmp.Compare(a.cost, b.cost) })
	var ids []string
	for _, g := range guesses[:min(3, len(guesses))] {
		ids = append(ids, g.id)
	}
	return ids
}

// resemble says how far a name is from an id, and whether that is near enough to be a mistake: a typing error, another
// case, a part of it, or another owner. Only the first bytes are compared, so that a long name costs little.
func resemble(name, id string) (cost int, near bool) {
	const most = 64
	a := strings.ToLower(name[:min(len(name), most)])
	b := strings.ToLower(id[:min(len(id), most)])
	baseA, baseB := a[strings.LastIndexByte(a, '/')+1:], b[strings.LastIndexByte(b, '/')+1:]
	switch {
	case a == b:
		return 0, true
	case baseA == baseB && baseA != "":
		return 1, true
	}
	limit := max(2, len(b)/4)
	if d := len(a) - len(b); d <= limit && -d <= limit {
		if d := distance(a, b); d <= limit && d < len(b) {
			return d, true
		}
	}
	if len(a) >= 3 && strings.Contains(b, a) || len(b) >= 3 && strings.Contains(a, b) {
		return limit + 1, true
	}
	return 0, false
}

// distance is Levenshtein's: insertions, deletions and changes of bytes that make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
