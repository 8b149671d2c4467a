package ring

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// The shares below are exact parts of all positions, not counts of some keys. Where v points of a member are spread
// at random among all N, its share is v/N on average, with a standard deviation of √(v/N·(1-v/N)/(N+1)): for one of n
// equal members with V points each, √(n(1-1/n)/(nV+1)) of the mean.

const sets = 1000

// setNames are n names of one of many sets.
func setNames(set, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("model-%d-%d", set, i)
	}
	return out
}

// shares are the parts of all positions that members own, by their indexes.
func shares(r *Ring) []float64 {
	out := make([]float64, r.Len())
	for i := range r.points {
		out[r.points[i].member()] += arc(r, i)
	}
	return out
}

// arc is the part of all positions that point i owns.
func arc(r *Ring, i int) float64 {
	before := r.points[(i+len(r.points)-1)%len(r.points)]
	return float64(r.points[i].position()-before.position()) / (1 << 32) // the difference wraps as the ring does
}

// movedTo is the part of all positions that has an owner in after, which has all points of before, other than in
// before; and the part of it that went to the member name.
func movedTo(before, after *Ring, name string) (moved, there float64) {
	for i, p := range after.points {
		from := before.members[before.points[before.find(p.position())].member()].Name
		to := after.members[p.member()].Name
		if from != to {
			moved += arc(after, i)
			if to == name {
				there += arc(after, i)
			}
		}
	}
	return moved, there
}

func meanAndDeviation(samples []float64) (mean, sd float64) {
	for _, s := range samples {
		mean += s / float64(len(samples))
	}
	for _, s := range samples {
		sd += (s - mean) * (s - mean) / float64(len(samples)-1)
	}
	return mean, math.Sqrt(sd)
}

// The margins are four standard errors and more of what a thousand samples show of a mean (0.25 % of it) and of a
// standard deviation (2.2 % of it).
func TestTheNthMemberMovesOneNthOfAllKeysWithTheSpreadOf150Points(t *testing.T) {
	for _, n := range []int{2, 5, 8} {
		t.Run(fmt.Sprintf("members=%d", n), func(t *testing.T) {
			samples := make([]float64, sets)
			for s := range samples {
				names := setNames(s, n)
				before := New(even(names[:n-1]...), 150)
				after := before.Change(even(names[n-1]), nil)
				moved, there := movedTo(before, after, names[n-1])
				if moved != there {
					t.Fatalf("set %d: %.4f of the keys moved, %.4f to the member that joined", s, moved, there)
				}
				samples[s] = moved * float64(n)
			}
			mean, sd := meanAndDeviation(samples)
			if math.Abs(mean-1) > 0.01 {
				t.Errorf("%.4f/%d of the keys move on average, want 1/%d within 1 %%", mean, n, n)
			}
			want := math.Sqrt(float64(n-1) / float64(n*150+1))
			if math.Abs(sd/want-1) > 0.1 {
				t.Errorf("the share that moves has a relative standard deviation of %.4f, want %.4f within 10 %%", sd, want)
			}
			t.Logf("mean %.4f/%d, relative standard deviation %.4f of %.4f", mean, n, sd, want)
		})
	}
}

func TestAMembersShareIsThatOfItsWeight(t *testing.T) {
	for _, weight := range []int{20, 50, 300} {
		t.Run(fmt.Sprintf("weight=%d", weight), func(t *testing.T) {
			samples := make([]float64, sets)
			for s := range samples {
				members := even(setNames(s, 8)...)
				members[0].Weight = weight
				samples[s] = shares(New(members, 150))[0] * float64(weight+700) / float64(weight)
			}
			mean, sd := meanAndDeviation(samples)
			part, points := float64(weight)/float64(weight+700), float64(weight+700)*1.5
			want := math.Sqrt((1 - part) / part / (points + 1))
			if math.Abs(mean-1) > 4.5*want/math.Sqrt(sets) {
				t.Errorf("its share is %.4f of what its weight says, on average", mean)
			}
			if math.Abs(sd/want-1) > 0.1 {
				t.Errorf("the relative standard deviation is %.4f, want %.4f within 10 %%", sd, want)
			}
		})
	}
}

func TestEightMembersShareTheRingEvenly(t *testing.T) {
	var worst, sum float64
	for s := range 100 {
		peak := slices.Max(shares(New(even(setNames(s, 8)...), 150))) * 8
		worst, sum = max(worst, peak), sum+peak
	}
	if mean := sum / 100; mean > 1.15 || worst > 1.30 {
		t.Errorf("peak over mean is %.3f on average and %.3f at worst, want at most 1.15 and 1.30", mean, worst)
	}
}

// Each of eight members of a hundred sets is lost in turn.
func TestTheKeysOfALostMemberSpreadOverAllSurvivors(t *testing.T) {
	const n, losses = 8, 8 * 100
	var load, taken []float64 // the peak over the mean of survivors: of all that they own, and of what they took over
	for s := range losses / n {
		members := even(setNames(s, n)...)
		before := New(members, 150)
		has := shares(before)
		for lost := range n {
			after := before.Change(nil, []string{members[lost].Name})
			have := shares(after)
			most := 0.0
			for i, share := range slices.Delete(slices.Clone(has), lost, lost+1) {
				if have[i] <= share {
					t.Fatalf("set %d: %s took nothing of %s's keys", s, after.members[i].Name, members[lost].Name)
				}
				most = max(most, have[i]-share)
			}
			load = append(load, slices.Max(have)*(n-1))
			taken = append(taken, most*(n-1)/has[lost])
		}
	}
	mean, _ := meanAndDeviation(load)
	if worst := slices.Max(load); mean > 1.15 || worst > 1.30 {
		t.Errorf("the fullest survivor has %.3f of the mean on average and %.3f at worst, want at most 1.15 and 1.30", mean, worst)
	}
	share, _ := meanAndDeviation(taken)
	if share > 1.5 {
		t.Errorf("the survivor that takes most takes %.3f of the mean on average, want at most 1.5", share)
	}
	t.Logf("load %.3f, %.3f at worst; taken over %.3f, %.3f at worst", mean, slices.Max(load), share, slices.Max(taken))
}
