package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Report is what a bench hands over.
type Report struct {
	Head Head
	// Figures is the list for machines.
	Figures any
	// Text is the Markdown for people, without a title, and Picture the SVG.
	Text, Picture string
	// Page is the page of docs that has a place for it, and Caption what the picture there shows; it has none without one.
	Page, Caption string
}

// Of is the report that has figures, and no more.
func Of(h Head, figures []Figure) Report {
	all := make([]written, len(figures))
	for i, f := range figures {
		all[i] = written(f)
	}
	return Report{Head: h, Figures: all, Text: text(h, figures), Picture: SVG(h, figures)}
}

// text is the table for people.
func text(h Head, figures []Figure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| figure | value | unit | goal | holds |\n|---|---|---|---|---|\n", place(h))
	for _, f := range figures {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.Name, short(f.Value), f.Unit, f.Goal, verdict(f))
	}
	return b.String()
}

// Out is the folder that benches write to.
func Out(root string) string { return filepath.Join(root, "bench", "out") }

// Write puts name.json, name.md and name.svg of figures that were measured here into dir.
func Write(dir, name, title string, figures []Figure) error {
	return Of(Here(name, title), figures).Write(dir)
}

// Write puts NAME.json, NAME.md and NAME.svg into dir, NAME being the bench's.
func (r Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list, err := json.MarshalIndent(struct {
		Head
		Figures any `json:"figures"`
	}{r.Head, r.Figures}, "", "  ")
	if err != nil {
		return err
	}
	for ending, content := range map[string]string{
		"json": string(list) + "\n", "md": "# " + r.Head.Title + "\n\n" + r.Text, "svg": r.Picture,
	} {
		if err := os.WriteFile(filepath.Join(dir, r.Head.Bench+"."+ending), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Keep writes the files into bench/out of the tree at root and, where asked to, publishes them in its documentation.
func (r Report) Keep(root string, publish bool) error {
	if err := r.Write(Out(root)); err != nil || !publish {
		return err
	}
	return r.publish(filepath.Join(root, "docs"))
}

// publish writes the text into its place in the page, and the picture beside it, as bench-NAME.svg.
func (r Report) publish(docs string) error {
	page, mark, text := filepath.Join(docs, r.Page), "bench-"+r.Head.Bench, r.Text
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	picture := mark + ".svg"
	if r.Caption != "" {
		text = fmt.Sprintf("![%s](%s)\n\n%s", r.Caption, picture, text)
	}
	whole, err := Insert(string(old), mark, text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(whole), 0o644); err != nil || r.Caption == "" {
		return err
	}
	return os.WriteFile(filepath.Join(docs, picture), []byte(r.Picture), 0o644)
}

// Insert puts text into its place in a page, between the comments <!-- MARK --> and <!-- /MARK -->.
func Insert(page, mark, text string) (string, error) {
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the page has no place for the tables: %s and %s", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}
