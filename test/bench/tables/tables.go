// Package tables makes a report of the rows of a bench that took turns. It measures nothing but the machine's load, judges
// nothing, and leaves it to package bench to write.
package tables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Load is the key of a head's machine for the load average at the start.
const Load = "load average at the start"

// Here is bench.Here with the load average, which it returns besides.
func Here(name, title string) (h bench.Head, load float64, err error) {
	if load, err = process.Load(); err != nil {
		return h, 0, err
	}
	h = bench.Here(name, title)
	h.Machine[Load] = strconv.FormatFloat(load, 'f', 2, 64)
	return h, load, nil
}

// Of is the report of rows for a page of docs. Its picture shows what has a goal. intro are sentences before the tables.
func Of(h bench.Head, intro string, rows []pairs.Row, page string) bench.Report {
	judged, _ := split(rows)
	return bench.Report{Head: h, Figures: rows, Text: text(h, intro, rows), Picture: bench.SVG(h, pairs.Figures(judged)),
		Page: page, Caption: "What has a goal"}
}

// split parts the rows with a goal from the others.
func split(rows []pairs.Row) (judged, plain []pairs.Row) {
	for _, r := range rows {
		if r.Goal != "" {
			judged = append(judged, r)
		} else {
			plain = append(plain, r)
		}
	}
	return judged, plain
}

// text is where the bench ran, what has a goal, and the rest.
func text(h bench.Head, intro string, rows []pairs.Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s CPUs (%s), %s, kernel %s, %s. Load average at the start: %s.\n",
		h.Machine["cpus"], h.Machine["cpu"], h.Machine["memory"], h.Machine["kernel"], h.Versions["go"], h.Machine[Load])
	b.WriteString(intro)
	judged, plain := split(rows)
	b.WriteString("\n| figure | median | least to greatest | pairs | load | goal | holds |\n|---|---|---|---|---|---|---|\n")
	for _, r := range judged {
		fmt.Fprintf(&b, "| %s | %s %s | %s | %d | %.1f | %s | %s |\n", r.Name, short(r.Value), r.Unit, spread(r), r.Pairs, r.Load, r.Goal,
			map[bool]string{true: "yes", false: "no"}[r.Holds])
	}
	if len(plain) > 0 {
		b.WriteString("\n| beside them | median | least to greatest | pairs | load |\n|---|---|---|---|---|\n")
	}
	for _, r := range plain {
		fmt.Fprintf(&b, "| %s | %s %s | %s | %d | %.1f |\n", r.Name, short(r.Value), r.Unit, spread(r), r.Pairs, r.Load)
	}
	return b.String()
}

func spread(r pairs.Row) string {
	if r.Pairs < 2 {
		return ""
	}
	return short(r.Least) + " to " + short(r.Greatest)
}

// short writes three digits or more.
func short(v float64) string {
	if v >= 100 || v <= -100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
