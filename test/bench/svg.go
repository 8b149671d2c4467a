package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	rowHeight = 28
	labels    = 500 // width of the names
	bars      = 300 // width of the longest bar
	figuresAt = labels + bars + 16
	width     = figuresAt + 180
)

// SVG draws a bar for each figure: its share of the goal, or, without one, of the greatest such figure of its unit. A
// line marks the goal; a bar that breaks it is red.
func SVG(h Head, figures []Figure) string {
	var b strings.Builder
	height := rowHeight*len(figures) + 64
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img" aria-label="%s">`+"\n",
		width, height, html.EscapeString(h.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="12" y="24" font-size="16" font-weight="bold">%s</text>`+"\n", html.EscapeString(h.Title))
	greatest := map[string]float64{}
	for _, f := range figures {
		if f.Goal == "" {
			greatest[f.Unit] = max(greatest[f.Unit], f.Value)
		}
	}
	for i, f := range figures {
		row(&b, 44+i*rowHeight, f, greatest[f.Unit])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// row draws one figure. With a goal the scale ends at 1.5 times the goal, or at the value when that is greater.
func row(b *strings.Builder, y int, f Figure, greatest float64) {
	scale := max(f.bound*1.5, f.Value)
	if f.Goal == "" {
		scale = greatest
	}
	at := func(v float64) int {
		if math.IsNaN(v) || !(scale > 0) {
			return 0
		}
		return int(v / scale * bars)
	}
	colour := "#2f6fb2"
	if !f.Holds {
		colour = "#b23a2f"
	}
	fmt.Fprintf(b, `<text x="12" y="%d">%s</text>`, y+15, html.EscapeString(f.Name))
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="16" fill="%s"/>`, labels, y+2, at(f.Value), colour)
	if f.Goal != "" {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#333333" stroke-dasharray="3 2"/>`, labels+at(f.bound), labels+at(f.bound), y-2, y+22)
	}
	goal := ""
	if f.Goal != "" {
		goal = " (" + f.Goal + ")"
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s %s%s</text>`+"\n", figuresAt, y+15, short(f.Value), html.EscapeString(f.Unit), html.EscapeString(goal))
}
