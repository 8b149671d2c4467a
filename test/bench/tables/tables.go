// Package tables writes the rows of a bench that took turns: as JSON for machines, as Markdown and as an SVG for people, and
// into the documentation where asked to. It measures and judges nothing.
package tables

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
)

// Load is the key of a head's machine for the load average at the start.
const Load = "load average at the start"

// Write puts NAME.json, NAME.md and NAME.svg into dir, NAME being the bench's. The picture shows what has a goal. intro are
// sentences before the tables.
func Write(dir string, h bench.Head, intro string, rows []pairs.Row) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(struct {
		bench.Head
		Figures []pairs.Row `json:"figures"`
	}{h, rows}, "", "  ")
	if err != nil {
		return err
	}
	judged, _ := split(rows)
	for ending, content := range map[string]string{
		"json": string(text) + "\n", "md": "# " + h.Title + "\n\n" + Markdown(h, intro, rows), "svg": bench.SVG(h, pairs.Figures(judged)),
	} {
		if err := os.WriteFile(filepath.Join(dir, h.Bench+"."+ending), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
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

// Markdown is where the bench ran, what has a goal, and the rest.
func Markdown(h bench.Head, intro string, rows []pairs.Row) string {
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

// Publish writes the tables into a page, between the comments <!-- MARK --> and <!-- /MARK -->, and the picture beside it, as
// MARK.svg.
func Publish(page, mark string, h bench.Head, intro string, rows []pairs.Row) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	picture := mark + ".svg"
	text, err := Insert(string(old), mark, fmt.Sprintf("![What has a goal](%s)\n\n%s", picture, Markdown(h, intro, rows)))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return err
	}
	judged, _ := split(rows)
	return os.WriteFile(filepath.Join(filepath.Dir(page), picture), []byte(bench.SVG(h, pairs.Figures(judged))), 0o644)
}

// Insert puts tables in their place in a page.
func Insert(page, mark, tables string) (string, error) {
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the page has no place for the tables: %s and %s", strings.TrimSpace(begin), end)
	}
	return before + begin + tables + end + after, nil
}
