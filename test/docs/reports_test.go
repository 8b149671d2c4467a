package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	public   = regexp.MustCompile(`^[\w.-]+/[\w.-]+#\d+(, [\w.-]+/[\w.-]+#\d+)*$`)
	shown    = regexp.MustCompile("^`([a-z0-9/]+)(?:\\.((?:Test|Fuzz)\\w+)|: ([^`]+))`$")
	shownAll = regexp.MustCompile("`[^`]*`")
)

// tests are the names of a folder's tests and fuzz targets, and the sentences of its specs.
func tests(t *testing.T, folder string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				out[n.Name.Name] = n.Recv == nil
			case *ast.CallExpr:
				if fun, ok := n.Fun.(*ast.Ident); ok && fun.Name == "It" && len(n.Args) > 0 {
					out[text(n.Args[0])] = true
				}
			}
			return true
		})
	}
	return out
}

// rows are the cells of a page's tables that have so many.
func rows(page string, cells int) (out [][]string) {
	for line := range strings.Lines(page) {
		c := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.HasPrefix(line, "|") && len(c) == cells && !strings.HasPrefix(c[0], "-") && strings.TrimSpace(c[0]) != "report" {
			for i := range c {
				c[i] = strings.TrimSpace(c[i])
			}
			out = append(out, c)
		}
	}
	return out
}

func TestEveryReportNamesTestsThatExist(t *testing.T) {
	page := read(t, filepath.Join(root, "docs/reports.md"))
	all := rows(page, 4)
	if lines := strings.Count(page, "\n|"); len(all) < 40 || len(all)+len(rows(page, 3))+2*strings.Count(page, "\n|---") != lines {
		t.Errorf("read %d rows of %d lines in tables: this test reads the page wrongly", len(all), lines)
	}
	known := map[string]map[string]bool{}
	for _, row := range all {
		if !public.MatchString(row[0]) {
			t.Errorf("%s is no list of repository#number", row[0])
		}
		names := shownAll.FindAllString(row[3], -1)
		if len(names) == 0 || strings.Join(names, ", ") != row[3] {
			t.Errorf("%s: %s is no list of tests", row[0], row[3])
		}
		for _, name := range names {
			m := shown.FindStringSubmatch(name)
			if m == nil {
				t.Errorf("%s: %s is no test's name", row[0], name)
				continue
			}
			if known[m[1]] == nil {
				known[m[1]] = tests(t, m[1])
			}
			if !known[m[1]][m[2]+m[3]] {
				t.Errorf("%s: there is no test %s", row[0], name)
			}
		}
	}
}
