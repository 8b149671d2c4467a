package placement

import (
	"slices"
	"testing"
)

// choices are tables for every policy: candidates in the walk's order, and which of them takes the request.
var choices = map[string]map[string]struct {
	members, last int // 0 members: as many as candidates, and nobody has had one
	candidates    []Candidate
	want          int
}{
	"LeastPredictedTTFT": {
		"nobody of nobody":                            {want: -1},
		"the owner when all are equal":                {candidates: []Candidate{{Prefill: 1}, {Prefill: 1}}, want: 0},
		"the one with the shorter queue":              {candidates: []Candidate{{Wait: 1, Prefill: 1}, {Wait: 0.5, Prefill: 1}}, want: 1},
		"the one that has the prompt":                 {candidates: []Candidate{{Prefill: 1}, {Prefill: 0.2}}, want: 1},
		"though it waits a little longer":             {candidates: []Candidate{{Prefill: 1}, {Wait: 0.9, Prefill: 0.2}}, want: 1},
		"but not much longer":                         {candidates: []Candidate{{Prefill: 1}, {Wait: 2, Prefill: 0.2}}, want: 0},
		"the owner when the other is hardly better":   {candidates: []Candidate{{Wait: 0.001, Prefill: 0.001}, {Prefill: 0.001}}, want: 0},
		"nor by less than a fiftieth":                 {candidates: []Candidate{{Wait: 10.1}, {Wait: 10}}, want: 0},
		"the one with its share where it is worth it": {candidates: []Candidate{{Prefill: 1}, {Prefill: 0.8, Beyond: true}}, want: 1},
		"but not for a little":                        {candidates: []Candidate{{Beyond: true, Prefill: 0.02}, {Prefill: 0.05}}, want: 1},
		"the first of those that are hardly better":   {candidates: []Candidate{{Wait: 9}, {Wait: 1.01}, {Wait: 1}}, want: 1},
	},
	"ConsistentHash": {
		"nobody of nobody":           {want: -1},
		"the first, whatever it has": {candidates: []Candidate{{Load: 5, Wait: 9}, {}}, want: 0},
		"but its share":              {candidates: []Candidate{{Beyond: true}, {Wait: 9}, {}}, want: 1},
	},
	"LeastLoaded": {
		"nobody of nobody":            {want: -1},
		"the one with least":          {candidates: []Candidate{{Load: 3, Weight: 100}, {Load: 1, Weight: 100}, {Load: 2, Weight: 100}}, want: 1},
		"the first of equals":         {candidates: []Candidate{{Load: 3, Weight: 100}, {Load: 1, Weight: 100}, {Load: 1, Weight: 100}}, want: 1},
		"least for its weight":        {candidates: []Candidate{{Load: 3, Weight: 100}, {Load: 5, Weight: 200}}, want: 1},
		"not one with its share":      {candidates: []Candidate{{Load: 1, Weight: 100, Beyond: true}, {Load: 2, Weight: 100}}, want: 1},
		"of idle ones the first goes": {candidates: []Candidate{{Weight: 100}, {Weight: 300}}, want: 0},
	},
	"RoundRobin": {
		"nobody of nobody":                        {want: -1},
		"the first by name, before there was one": {candidates: []Candidate{{Member: 2}, {Member: 0}, {Member: 1}}, last: -1, want: 1},
		"the one after the last":                  {candidates: []Candidate{{Member: 2}, {Member: 0}, {Member: 1}}, last: 0, want: 2},
		"around the end":                          {candidates: []Candidate{{Member: 2}, {Member: 0}, {Member: 1}}, last: 2, want: 1},
		"the next one for one that can't":         {members: 4, candidates: []Candidate{{Member: 3}, {Member: 0}}, last: 0, want: 0},
		"the same one when it is the only one":    {members: 4, candidates: []Candidate{{Member: 3}}, last: 3, want: 0},
		"not one with its share":                  {members: 3, candidates: []Candidate{{Member: 1, Beyond: true}, {Member: 0}, {Member: 2}}, last: 0, want: 2},
		"a ring that has become smaller":          {members: 2, candidates: []Candidate{{Member: 1}, {Member: 0}}, last: 7, want: 1},
	},
}

func TestEveryPolicyTakes(t *testing.T) {
	if names := Names(); names[0] != DefaultPolicy || len(names) != len(choices) {
		t.Errorf("there are %v", names)
	}
	for policy, table := range choices {
		for name, c := range table {
			t.Run(policy+"/"+name, func(t *testing.T) {
				p, ok := ByName(policy)
				if !ok || p.Name() != policy || !slices.Contains(Names(), policy) {
					t.Fatalf("there is no policy %s", policy)
				}
				if c.members == 0 {
					c.members = len(c.candidates)
				}
				if got := p.Choose(&Snapshot{Members: c.members, Last: c.last, Candidates: c.candidates}); got != c.want {
					t.Errorf("takes %d, want %d", got, c.want)
				}
			})
		}
	}
}

func TestThereIsNoPolicyOfAnotherName(t *testing.T) {
	for _, name := range []string{"", "roundrobin", "Random"} {
		if p, ok := ByName(name); ok || p != nil {
			t.Errorf("%q is %v", name, p)
		}
	}
}

func TestTurnsGoAroundWhateverTheKeys(t *testing.T) {
	b := board(Options{Policy: RoundRobin{}}, 5)
	var got []string
	for i := range 10 {
		k := place(t, b, ask("r", string(rune('a'+i)), "hello"), epoch)
		got = append(got, k.Worker().Pod)
		k.Ended(Result{}, epoch)
	}
	if want := []string{"w0", "w1", "w2", "w3", "w4", "w0", "w1", "w2", "w3", "w4"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
