// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPatterns compiles every pattern that the program passes to Regexp. Otherwise an invalid pattern would panic only at its first use.
func TestPatterns(t *testing.T) {
	t.Parallel()
	found := 0
	for _, dir := range []string{"cmd", "e2e", "internal", "policy", "test"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, call := range callsOf(f, "wording.Regexp") {
				found++
				pattern, err := textOf(f, call.Args[0])
				if err == nil {
					_, err = regexp.Compile(pattern)
				}
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 20 {
		t.Errorf("%d patterns were found: the test does not see them", found)
	}
}

func callsOf(f *ast.File, name string) (list []*ast.CallExpr) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && nameOf(call.Fun) == name {
			list = append(list, call)
		}
		return true
	})
	return list
}

func nameOf(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return fmt.Sprint(s.X, ".", s.Sel)
	}
	return ""
}

// textOf returns the value of an expression that consists of literals, constants of the same file, + and regexp.QuoteMeta.
func textOf(f *ast.File, e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.BinaryExpr:
		left, err := textOf(f, e.X)
		if err != nil {
			return "", err
		}
		right, err := textOf(f, e.Y)
		return left + right, err
	case *ast.CallExpr:
		if nameOf(e.Fun) == "regexp.QuoteMeta" {
			text, err := textOf(f, e.Args[0])
			return regexp.QuoteMeta(text), err
		}
	case *ast.Ident:
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					if v := s.(*ast.ValueSpec); v.Names[0].Name == e.Name && len(v.Values) == 1 {
						return textOf(f, v.Values[0])
					}
				}
			}
		}
	}
	return "", fmt.Errorf("a pattern is not made of literals and constants of its file: write it so, as this test cannot read it")
}
