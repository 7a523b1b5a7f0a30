// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listed is the output of `go list` for a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	Standard                      bool
}

// TestPackageComments checks that doc.go of each package shows the package in use, in code that type-checks. Variables may be undeclared.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	all, byName := packages(t)
	exports := importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) { return os.Open(all[name].Export) })
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if p.Standard || p.Name == "main" || !strings.HasPrefix(name, "github.com/floodwall/floodwall/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil {
			t.Errorf("%s has no doc.go: its first sentence says what the package is", name)
			continue
		}
		blocks := codeOf(t, text, p.Name)
		if len(blocks) == 0 && exportsAny(t, exports, p) {
			t.Errorf("%s: doc.go does not show the package in use", name)
		}
		for _, code := range blocks {
			for _, err := range mistakes(exports, code, func(as string) string {
				if as == p.Name {
					return name
				}
				return byName[as]
			}) {
				t.Errorf("%s: the code in doc.go: %v", name, err)
			}
		}
	}
}

// exportsAny reports whether other packages can import this one. Packages with only tests have nothing to show.
func exportsAny(t *testing.T, exports types.Importer, p listed) bool {
	if p.Export == "" { // it has only files of tests, or does not compile: then another test reports this
		return false
	}
	of, err := exports.Import(p.ImportPath)
	if err != nil {
		t.Error(err)
		return true
	}
	return slices.ContainsFunc(of.Scope().Names(), ast.IsExported)
}

// packages returns the packages of this module and all that they import, by path; and paths by the name of the package. Among packages with the same
// name, it takes the one of this module. Two of these are called wire: outside of package fleet/wire itself, the name means bgp/wire.
func packages(t *testing.T) (all map[string]listed, byName map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-export", "-deps", "-json=ImportPath,Dir,Name,Export,Standard", "work")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all, byName = map[string]listed{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, byName
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
		if strings.Contains(p.ImportPath, "internal/") && p.Standard || strings.Contains(p.ImportPath, "vendor/") {
			continue
		}
		before := byName[p.Name]
		if of := path.Base(path.Dir(p.ImportPath)); before == "" || strings.HasPrefix(p.ImportPath, "github.com/floodwall/") && of != "fleet" {
			byName[p.Name] = p.ImportPath
		}
	}
}

// codeOf returns the blocks of code in a package comment that contain the package's name.
func codeOf(t *testing.T, text []byte, name string) (blocks []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "doc.go", text, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range new(comment.Parser).Parse(f.Doc.Text()).Content {
		if code, ok := c.(*comment.Code); ok && strings.Contains(code.Text, name+".") {
			blocks = append(blocks, code.Text)
		}
	}
	return blocks
}

// undeclared matches errors in code that is not a complete program. An undeclared variable may only be an argument.
var undeclared = regexp.MustCompile(`^undefined: \w+$|^declared and not used|imported and not used|no new variables on left side of :=$`)

// variables are the variables that the code may use without a declaration. Each has a type, so that its methods are found.
var variables = map[string]string{
	"ctx": "context.Context", "t": "*testing.T", "err": "error", "p": "*policy.Policy", "program": "*ir.Program", "host": "operate.Host",
	"instance": "control.Instance", "talkers": "*sample.Talkers", "im": "*image.Image", "staged": "*boot.Staged",
	"enforcer": "node.Enforcer", "u": "*policy.Upstream", "state": "string", "bpffs": "string", "text": "[]byte",
	"frame": "[]byte", "nlri": "[]byte", "devices": "[]string", "prefix": "netip.Prefix", "victim": "netip.Prefix", "dir": "string",
	"info": "fs.FileInfo", "conn": "net.Conn", "never": "[]netip.Prefix", "peers": "[]netip.Prefix", "slots": "[]uint32",
}

// mistakes returns the type errors of code, which is the body of a function or declarations. The parameter find returns the package for an
// identifier.
func mistakes(exports types.Importer, code string, find func(string) string) (list []error) {
	fset := token.NewFileSet()
	var declared strings.Builder
	for name, kind := range variables {
		of, _, qualified := strings.Cut(strings.TrimLeft(kind, "*[]"), ".")
		if find(name) == "" && (!qualified || find(of) != "") && regexp.MustCompile(`\b`+name+`\b`).MatchString(code) {
			fmt.Fprintf(&declared, "var %s %s\n", name, kind)
		}
	}
	f, err := parser.ParseFile(fset, "code", "package shown\nfunc _() {\n"+code+"}\n"+declared.String(), parser.SkipObjectResolution)
	if err != nil {
		if f, err = parser.ParseFile(fset, "code", "package shown\n"+code+declared.String(), parser.SkipObjectResolution); err != nil {
			return []error{err}
		}
	}
	imports := &ast.GenDecl{Tok: token.IMPORT, Lparen: 1}
	seen := map[string]bool{}
	bases := map[string]bool{} // the words before a dot
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		bases[x.Name] = true
		if seen[x.Name] || find(x.Name) == "" {
			return true
		}
		seen[x.Name] = true
		spec := &ast.ImportSpec{Name: ast.NewIdent(x.Name), Path: &ast.BasicLit{Kind: token.STRING, Value: fmt.Sprintf("%q", find(x.Name))}}
		imports.Specs = append(imports.Specs, spec)
		f.Imports = append(f.Imports, spec)
		return true
	})
	f.Decls = append([]ast.Decl{imports}, f.Decls...)
	config := types.Config{Importer: exports, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || !undeclared.MatchString(e.Msg) || bases[strings.TrimPrefix(e.Msg, "undefined: ")] {
			list = append(list, err)
		}
	}}
	config.Check("shown", fset, []*ast.File{f}, nil)
	return list
}
