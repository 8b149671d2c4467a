// Package rules checks what the project means by its layout: who may import whom, how long a file may be, that every
// package says what it is for, where time may be read, and that tests don't sleep. It reads source files and runs no
// other tool. Its test is the check.
package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the main module.
const Module = "github.com/ringfleet/ringfleet"

// File is one Go file as the rules see it.
type File struct {
	// Path is relative to the repository's root, with slashes.
	Path      string
	Lines     int
	Test      bool
	Generated bool
	AST       *ast.File
	Pos       *token.FileSet
}

// Dir is the folder of the file, which is its package's path within the module.
func (f File) Dir() string { return path.Dir(f.Path) }

// at returns file:line of a node.
func (f File) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.Path, f.Pos.Position(n.Pos()).Line)
}

// Load parses every Go file below root, folders that hold a module of their own left out.
func Load(root string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			return enter(root, rel, d.Name())
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := load(p, rel)
		files = append(files, f)
		return err
	})
	return files, err
}

// enter skips folders that are not the module's source.
func enter(root, rel, name string) error {
	if rel == "." {
		return nil
	}
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
		return fs.SkipDir
	}
	if m, _ := filepath.Glob(filepath.Join(root, rel, "go.mod")); len(m) > 0 {
		return fs.SkipDir
	}
	return nil
}

func load(p, rel string) (File, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, p, nil, parser.ParseComments)
	if err != nil {
		return File{}, err
	}
	return File{
		Path: rel, AST: tree, Pos: set,
		Lines:     set.File(tree.Pos()).LineCount(),
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(tree),
	}, nil
}

// imports returns the paths that f imports.
func (f File) imports() []string {
	var out []string
	for _, i := range f.AST.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Length says which files are too long: 400 lines, types 600, tests 800. Generated files may have any length.
func Length(files []File) []string {
	var bad []string
	for _, f := range files {
		limit := 400
		switch {
		case f.Test:
			limit = 800
		case strings.HasSuffix(f.Path, "_types.go"):
			limit = 600
		}
		if !f.Generated && f.Lines > limit {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d: split it", f.Path, f.Lines, limit))
		}
	}
	return bad
}

// PackageComments says which packages have no comment of at least a sentence. External tests need none.
func PackageComments(files []File) []string {
	has := map[string]bool{}
	for _, f := range files {
		if f.Generated || strings.HasSuffix(f.AST.Name.Name, "_test") {
			continue
		}
		doc := f.AST.Doc
		has[f.Dir()] = has[f.Dir()] || doc != nil && len(strings.Fields(doc.Text())) >= 6
	}
	var bad []string
	for dir, ok := range has {
		if !ok {
			bad = append(bad, dir+" has no package comment: say what it decides and what it never does")
		}
	}
	slices.Sort(bad)
	return bad
}

// calls reports each use of one of the functions of the package with the given import path.
func (f File) calls(importPath string, functions ...string) []string {
	name := path.Base(importPath)
	found := false
	for _, i := range f.AST.Imports {
		if i.Path.Value != strconv.Quote(importPath) {
			continue
		}
		found = true
		if i.Name != nil {
			name = i.Name.Name
		}
	}
	if !found {
		return nil
	}
	var out []string
	ast.Inspect(f.AST, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == name && slices.Contains(functions, s.Sel.Name) {
			out = append(out, fmt.Sprintf("%s uses %s.%s", f.at(s), name, s.Sel.Name))
		}
		return true
	})
	return out
}

// Sleeps says which tests sleep: time is injected, or a condition is waited for.
func Sleeps(files []File) []string {
	var bad []string
	for _, f := range files {
		if f.Test {
			bad = append(bad, f.calls("time", "Sleep")...)
		}
	}
	return bad
}

// Clocks says where a pure package reads the time itself. Its tests may.
func Clocks(files []File, pure []string) []string {
	var bad []string
	for _, f := range files {
		if !f.Test && slices.Contains(pure, f.Dir()) {
			bad = append(bad, f.calls("time", "Now", "Since", "Until", "After", "Tick", "NewTimer", "NewTicker", "Sleep")...)
		}
	}
	return bad
}

// Names says which packages have a name that says nothing, and which files run code by being imported.
func Names(files []File) []string {
	var bad []string
	for _, f := range files {
		if n := f.AST.Name.Name; slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "base"}, n) {
			bad = append(bad, fmt.Sprintf("%s: package %s says nothing: name what it does", f.Path, n))
		}
		if f.Generated {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				bad = append(bad, f.at(fn)+": init runs without being called: make it a function")
			}
		}
	}
	return bad
}
