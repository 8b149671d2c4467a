package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Result is what became of a capability.
type Result string

// The results.
const (
	Yes    Result = "yes"
	No     Result = "no" // not offered, and said so
	Failed Result = "fails"
	NotRun Result = "not run"
)

// Row is one capability of an engine.
type Row struct {
	Capability string `json:"capability"`
	Result     Result `json:"result"`
	Why        string `json:"why,omitempty"`
}

// Report is the column of one engine.
type Report struct {
	Engine string `json:"engine"`
	Rows   []Row  `json:"rows"`
}

// JSON writes reports for programs.
func JSON(reports []Report) ([]byte, error) {
	return json.MarshalIndent(reports, "", "  ")
}

// Markdown writes reports as one table, a row for each capability and a column for each engine.
func Markdown(reports []Report) string {
	var b strings.Builder
	b.WriteString("| capability |")
	for _, r := range reports {
		fmt.Fprintf(&b, " %s |", r.Engine)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(reports)) + "\n")
	for i, c := range capabilities() {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, r := range reports {
			cell := string(NotRun)
			if i < len(r.Rows) {
				cell = string(r.Rows[i].Result)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}
