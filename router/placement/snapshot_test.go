package placement

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestWhoIsEligible(t *testing.T) {
	for name, c := range map[string]struct {
		candidates []Candidate // Member and Weight are filled in
		percent    int         // 0: 125
		begun      bool        // the answer
		want       []int       // members
		full       int
		beyond     []int // of those
	}{
		"all that are idle":                            {candidates: make([]Candidate, 3), want: []int{0, 1, 2}},
		"nobody where there is nobody":                 {},
		"not the suspect":                              {candidates: []Candidate{{Handicap: HandicapSuspect}, {}}, want: []int{1}},
		"the suspect when the other is ejected":        {candidates: []Candidate{{Handicap: HandicapEjected}, {Handicap: HandicapSuspect}}, want: []int{1}},
		"the ejected suspect when the other lacks":     {candidates: []Candidate{{Handicap: HandicapAdapter}, {Handicap: HandicapEjected | HandicapSuspect}}, want: []int{1}},
		"not the full one":                             {candidates: []Candidate{{Full: true}, {}}, want: []int{1}, full: 1},
		"nobody when all are full":                     {candidates: []Candidate{{Full: true}, {Full: true}}, full: 2},
		"full ones when the answer has begun":          {candidates: []Candidate{{Full: true}, {Full: true}}, begun: true, want: []int{0, 1}, full: 2},
		"though not while another has room":            {candidates: []Candidate{{Full: true}, {}}, begun: true, want: []int{1}, full: 1},
		"no suspect instead of full ones":              {candidates: []Candidate{{Full: true}, {Handicap: HandicapSuspect}}, full: 1},
		"not one that is too small":                    {candidates: []Candidate{{Small: true}, {}}, want: []int{1}},
		"though another is full":                       {candidates: []Candidate{{Small: true}, {Full: true}}, full: 1},
		"all where all are too small":                  {candidates: []Candidate{{Small: true}, {Small: true}}, want: []int{0, 1}},
		"not a new one with all it may have":           {candidates: []Candidate{{Starting: true, Load: 1}, {Load: 5}}, want: []int{1}},
		"new ones where there is nobody else":          {candidates: []Candidate{{Starting: true, Load: 1}, {Full: true}}, want: []int{0}, full: 1},
		"not the one beyond its share":                 {candidates: []Candidate{{Load: 5}, {Load: 3}, {Load: 3}, {Load: 3}}, want: []int{1, 2, 3}},
		"two requests are never beyond the share":      {candidates: []Candidate{{Load: 1}, {}, {}, {}, {}, {}, {}, {}}, want: []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"three of them are":                            {candidates: []Candidate{{Load: 2}, {}, {}, {}, {}, {}, {}, {}}, want: []int{1, 2, 3, 4, 5, 6, 7}},
		"the one whose weight gives it more":           {candidates: []Candidate{{Load: 11, Weight: 300}, {Load: 6}}, want: []int{0}},
		"all of equal load, though they have a lot":    {candidates: []Candidate{{Load: 9}, {Load: 9}}, percent: 100, want: []int{0, 1}},
		"the full one's load bounds nobody":            {candidates: []Candidate{{Load: 100, Full: true}, {Load: 4}, {Load: 4}}, want: []int{1, 2}, full: 1},
		"the one with few for its seats":               {candidates: []Candidate{{Load: 5, Free: 16}, {Load: 3}, {Load: 3}, {Load: 3}}, want: []int{0, 1, 2, 3}, beyond: []int{0}},
		"unless it has all that is free":               {candidates: []Candidate{{Load: 16, Free: 16}, {Load: 3}, {Load: 3}, {Load: 3}}, want: []int{1, 2, 3}},
		"with a wider bound the one with more as well": {candidates: []Candidate{{Load: 5}, {Load: 3}, {Load: 3}, {Load: 3}}, percent: 200, want: []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.percent == 0 {
				c.percent = 125
			}
			for i := range c.candidates {
				c.candidates[i].Member = i
				if c.candidates[i].Weight == 0 {
					c.candidates[i].Weight = 100
				}
			}
			left, full := eligible(c.candidates, c.percent, c.begun)
			var got, beyond []int
			for _, l := range left {
				got = append(got, l.Member)
				if l.Beyond {
					beyond = append(beyond, l.Member)
				}
			}
			if !slices.Equal(beyond, c.beyond) {
				t.Errorf("%v are beyond their shares", beyond)
			}
			if !slices.Equal(got, c.want) || full != c.full {
				t.Errorf("got %v and %d full, want %v and %d", got, full, c.want, c.full)
			}
		})
	}
}

// draw makes any candidates.
func draw(t *rapid.T) []Candidate {
	n := rapid.IntRange(1, 12).Draw(t, "workers")
	out := make([]Candidate, n)
	for i := range out {
		out[i] = Candidate{
			Member: i, Rank: i, Weight: rapid.SampledFrom([]int{100, 100, 50, 300}).Draw(t, "weight"),
			Handicap: rapid.SampledFrom([]Handicap{0, 0, 0, HandicapSuspect, HandicapEjected, HandicapAdapter, 3}).Draw(t, "handicap"),
			Small:    rapid.IntRange(0, 4).Draw(t, "small") == 0,
			Full:     rapid.IntRange(0, 4).Draw(t, "full") == 0, Starting: rapid.IntRange(0, 4).Draw(t, "starting") == 0,
			Load: rapid.IntRange(0, 20).Draw(t, "load"), Wait: rapid.Float64Range(0, 5).Draw(t, "wait"),
			Prefill: rapid.Float64Range(0.001, 5).Draw(t, "prefill"), Free: rapid.SampledFrom([]int{0, 0, 4, 16}).Draw(t, "free"),
		}
	}
	return out
}

func TestNoPolicyTakesAWorkerThatMayNotWhileAnotherMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := draw(t)
		percent := rapid.IntRange(100, 300).Draw(t, "percent")
		left, _ := eligible(slices.Clone(all), percent, false)
		least := slices.MinFunc(all, func(a, b Candidate) int { return int(a.Handicap - b.Handicap) }).Handicap
		small := !slices.ContainsFunc(all, func(c Candidate) bool { return c.Handicap == least && !c.Small }) // all of them
		able, room, old, requests, weights := 0, 0, 0, 1, 0
		for _, c := range all {
			if c.Handicap != least || c.Small && !small {
				continue
			}
			able++
			if !c.Full {
				room++
				if !c.Starting {
					old++
				}
			}
		}
		if (room == 0) != (len(left) == 0) {
			t.Fatalf("%d are left of %d that have room", len(left), room)
		}
		for _, c := range all {
			if c.Handicap == least && (small || !c.Small) && !c.Full && (old == 0 || !c.Starting) {
				requests += c.Load
				weights += c.Weight
			}
		}
		for _, p := range policies {
			i := p.Choose(&Snapshot{Members: len(all), Last: rapid.IntRange(-1, len(all)).Draw(t, "last"), Candidates: left})
			if len(left) == 0 {
				if i != -1 {
					t.Fatalf("%s takes %d of nobody", p.Name(), i)
				}
				continue
			}
			c := left[i]
			switch {
			case c.Handicap != least, c.Small && !small, c.Full, c.Starting && old > 0:
				t.Fatalf("%s takes %+v", p.Name(), c)
			case c.Load+1 > 2 && 100*weights*c.Load >= percent*requests*c.Weight && (p.Name() != DefaultPolicy || c.Load >= c.Free):
				t.Fatalf("%s takes %+v beyond %d %% of its share of %d", p.Name(), c, percent, requests)
			}
		}
	})
}

func TestEqualSnapshotsGiveEqualChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Snapshot{Candidates: draw(t), Last: rapid.IntRange(-1, 3).Draw(t, "last")}
		s.Members = len(s.Candidates)
		for _, p := range policies {
			before := Snapshot{Members: s.Members, Last: s.Last, Candidates: slices.Clone(s.Candidates)}
			first, second := p.Choose(&s), p.Choose(&s)
			if first != second || !reflect.DeepEqual(s, before) {
				t.Fatalf("%s chose %d, then %d", p.Name(), first, second)
			}
		}
	})
}
