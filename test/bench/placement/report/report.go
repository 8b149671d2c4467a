// Package report makes a report of what replays have shown. It judges by the goals that it is given figures with, replays
// nothing, and leaves it to package bench to write.
package report

import (
	"fmt"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
)

// Row is what one policy made of a replay.
type Row struct {
	// Policy is its name for people.
	Policy string
	// Ours says that the router's own package has placed.
	Ours bool
	sim.Summary
}

// Table is the policies on one fleet with one trace.
type Table struct {
	// Name is short, for the names of figures; Title says everything.
	Name, Title string
	Rows        []Row
}

// Row returns the row of a policy; nil when there is none.
func (t Table) Row(policy string) *Row {
	for i := range t.Rows {
		if t.Rows[i].Policy == policy {
			return &t.Rows[i]
		}
	}
	return nil
}

// Replays is all tables, and the figures with a goal.
type Replays struct {
	Head   bench.Head
	Judged []bench.Figure
	Tables []Table
}

// figures are those with a goal and then everything in the tables.
func (r Replays) figures() []bench.Figure {
	out := append([]bench.Figure(nil), r.Judged...)
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			name := t.Name + ": " + row.Policy + ": "
			out = append(out,
				bench.Plain(name+"hit rate", 100*row.Hit, "%"),
				bench.Plain(name+"mean TTFT", row.Mean.Seconds(), "s"),
				bench.Plain(name+"p90 TTFT", row.P90.Seconds(), "s"),
				bench.Plain(name+"p99 TTFT", row.P99.Seconds(), "s"),
				bench.Plain(name+"prefill tokens, peak over mean", row.PrefillPeak, "×"),
				bench.Plain(name+"requests, peak over mean", row.RequestPeak, "×"),
			)
		}
	}
	return out
}

// tooLong is the mean beyond which a policy has no bar: it would leave no room for the others.
const tooLong = 20.0

// pictured are the figures of the picture: those with a goal, and hits and means of the first table.
func (r Replays) pictured() []bench.Figure {
	out := append([]bench.Figure(nil), r.Judged...)
	if len(r.Tables) == 0 {
		return out
	}
	for _, row := range r.Tables[0].Rows {
		out = append(out, bench.Plain("hit rate: "+row.Policy, 100*row.Hit, "%"))
	}
	for _, row := range r.Tables[0].Rows {
		if row.Mean.Seconds() <= tooLong {
			out = append(out, bench.Plain("mean TTFT: "+row.Policy, row.Mean.Seconds(), "s"))
		}
	}
	return out
}

// text is what has a goal, and the tables.
func (r Replays) text() string {
	var b strings.Builder
	if len(r.Judged) > 0 {
		b.WriteString("| figure | value | goal | holds |\n|---|---|---|---|\n")
	}
	for _, f := range r.Judged {
		fmt.Fprintf(&b, "| %s | %.3g %s | %s | %s |\n", f.Name, f.Value, f.Unit, f.Goal, map[bool]string{true: "yes", false: "no"}[f.Holds])
	}
	for _, t := range r.Tables {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n\n| policy | hit rate | TTFT mean | p90 | p99 | prefill peak/mean | requests peak/mean |\n|---|---|---|---|---|---|---|\n", t.Title)
		for _, row := range t.Rows {
			name := row.Policy
			if row.Ours {
				name = "**" + name + "**"
			}
			fmt.Fprintf(&b, "| %s | %.1f %% | %s s | %s s | %s s | %.2f | %.2f |\n", name, 100*row.Hit,
				seconds(row.Mean.Seconds()), seconds(row.P90.Seconds()), seconds(row.P99.Seconds()), row.PrefillPeak, row.RequestPeak)
		}
	}
	return b.String()
}

// seconds has as many digits as say something.
func seconds(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Report is all of that, for docs/benchmarks.md.
func (r Replays) Report() bench.Report {
	return bench.Report{Head: r.Head, Figures: r.figures(), Text: r.text(), Picture: bench.SVG(r.Head, r.pictured()),
		Page: "benchmarks.md", Caption: "Hit rates and times to the first token"}
}
