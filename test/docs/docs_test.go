package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	target  = regexp.MustCompile("(?:^|[`\\s])make +([a-z][a-z0-9-]*)")
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]+`")
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages are the texts that people wrote.
func pages(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(paths) < 9 {
		t.Fatalf("found %d pages: %v", len(paths), err)
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return filepath.Base(p) == "api.md" })
	return append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "charts/ringfleet/README.md"))
}

// files parses the Go files of a folder without its tests.
func files(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func text(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}

// constants returns the values of the string constants of a folder whose names fit.
func constants(t *testing.T, dir string, fits func(name, kind string) bool) []string {
	var out []string
	for _, f := range files(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != len(v.Names) {
				return true
			}
			kind, _ := v.Type.(*ast.Ident)
			for i, name := range v.Names {
				if s := text(v.Values[i]); s != "" && fits(name.Name, kindName(kind)) {
					out = append(out, s)
				}
			}
			return true
		})
	}
	return out
}

func kindName(id *ast.Ident) string {
	if id == nil {
		return ""
	}
	return id.Name
}

// errorCodes are the codes that package gateway gives to errors.
func errorCodes(t *testing.T) []string {
	var out []string
	position := map[string]int{"refuse": 3, "invalid": 2} // of the code among the arguments
	for _, f := range files(t, "router/gateway") {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if fun, ok := n.Fun.(*ast.Ident); ok && position[fun.Name] > 0 && len(n.Args) > position[fun.Name] {
					out = append(out, text(n.Args[position[fun.Name]]))
				}
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Code" {
					out = append(out, text(n.Rhs[0]))
				}
			}
			return true
		})
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// eventReasons are the reasons of a model's events.
func eventReasons(t *testing.T) []string {
	var out []string
	for _, f := range files(t, "controllers/inferencemodel") {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if kind, is := lit2ident(lit, ok); !is || kind != "Event" {
				return true
			}
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && kindName(kv.Key.(*ast.Ident)) == "Reason" {
					out = append(out, text(kv.Value))
				}
			}
			return true
		})
	}
	return out
}

func lit2ident(lit *ast.CompositeLit, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	id, is := lit.Type.(*ast.Ident)
	return kindName(id), is
}

func TestEveryReasonAndErrorCodeIsExplained(t *testing.T) {
	headings := headingsOf(read(t, filepath.Join(root, "docs/errors.md")))
	for _, c := range []struct {
		what  string
		names []string
		least int
	}{
		{"reason", constants(t, "api/v1alpha1", func(name, kind string) bool { return kind == "Reason" }), 30},
		{"condition", constants(t, "api/v1alpha1", func(name, kind string) bool { return kind == "ConditionType" }), 5},
		{"event", eventReasons(t), 8},
		{"code", constants(t, "router/openai", func(name, _ string) bool { return strings.HasPrefix(name, "Code") }), 6},
		{"code", errorCodes(t), 15},
	} {
		if len(c.names) < c.least {
			t.Errorf("found %d names of kind %s, expected at least %d: this test reads the source wrongly", len(c.names), c.what, c.least)
		}
		for _, n := range c.names {
			if !slices.Contains(headings, n) {
				t.Errorf("docs/errors.md has no heading for the %s %s", c.what, n)
			}
		}
	}
}

func headingsOf(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		out = append(out, m[1])
	}
	return out
}

func TestEveryMakeTargetIsThere(t *testing.T) {
	makefile := read(t, filepath.Join(root, "Makefile"))
	for _, p := range pages(t) {
		page := read(t, p)
		for _, c := range append(code.FindAllString(fence.ReplaceAllString(page, ""), -1), fence.FindAllString(page, -1)...) {
			for _, m := range target.FindAllStringSubmatch(c, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s names make %s, which the Makefile has not", p, m[1])
				}
			}
		}
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, p), ""), -1) {
			path, part, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			to := p
			if path != "" {
				to = filepath.Join(filepath.Dir(p), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", p, m[1], err)
			} else if part != "" && !slices.Contains(anchors(read(t, to)), part) {
				t.Errorf("%s links to %s, and that page has no such heading", p, m[1])
			}
		}
	}
}

// anchors are what headings are linked by.
func anchors(page string) []string {
	var out []string
	for _, h := range headingsOf(page) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(h)))
	}
	return out
}
