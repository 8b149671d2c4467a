// Package target finds the fuzz targets of the tree and runs one of them with Go's own fuzzer, and tells what it did. What a
// target holds, and what its corpus is, is its package's to say.
package target

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/hack/rules"
)

// Target is one fuzz target.
type Target struct {
	// Dir is its package's folder, relative to the root of the tree, with slashes.
	Dir  string
	Name string
}

// Find returns the targets of the tree at root whose names or folders only matches, in the order of their folders.
func Find(root string, only *regexp.Regexp) ([]Target, error) {
	files, err := rules.Load(root)
	if err != nil {
		return nil, fmt.Errorf("look for fuzz targets: %w", err)
	}
	var out []Target
	for _, f := range files {
		if !f.Test {
			continue
		}
		for _, d := range f.AST.Decls {
			if name := fuzzed(d); name != "" && (only.MatchString(name) || only.MatchString(f.Dir())) {
				out = append(out, Target{Dir: f.Dir(), Name: name})
			}
		}
	}
	slices.SortFunc(out, func(a, b Target) int { return strings.Compare(path.Join(a.Dir, a.Name), path.Join(b.Dir, b.Name)) })
	return out, nil
}

// fuzzed is the name of the fuzz target that d declares, or "".
func fuzzed(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") || len(f.Type.Params.List) != 1 {
		return ""
	}
	pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	if kind, ok := pointer.X.(*ast.SelectorExpr); !ok || kind.Sel.Name != "F" {
		return ""
	}
	return f.Name.Name
}
