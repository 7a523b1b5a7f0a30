// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// source has the names and comments of the project's code, to check references in comments.
type source struct {
	files    map[string]bool            // by their base names
	declared map[string]map[string]bool // the exported names of a package, of its types' fields and methods, by the package's name
	imported map[string]bool            // imported packages of other projects, by the last part of their paths
	used     map[string]bool            // all names in the code
	comments []codeComment
	empty    []string // files without code, other than doc.go
}

// codeComment is a comment in a file, without lines of example code.
type codeComment struct {
	place, text string
	local       map[string]bool // the names that the file uses
}

// TestReferences checks that files of the project and names of its code exist if comments mention them: exported names of packages, members of types,
// and names with a capital letter inside. It does not check paths of the kernel's sources and of other projects.
func TestReferences(t *testing.T) {
	s := readSource(t)
	file := regexp.MustCompile(`(?:^|[\s("])((?:(?:internal|bpf|cmd|e2e|policy|test|tools)/)?[a-z][a-z0-9_]*\.(?:go|c|h))\b`)
	path := regexp.MustCompile(`(?:^|[\s("])((?:internal|bpf|cmd|e2e|policy|test|tools)/[A-Za-z0-9_/-]+[A-Za-z0-9_])`)
	name := regexp.MustCompile(`\b([a-z][a-z0-9]*)\.([A-Z][A-Za-z0-9]*)`)
	for _, c := range s.comments {
		for _, m := range file.FindAllStringSubmatch(c.text, -1) {
			if !s.files[filepath.Base(m[1])] && !ofOthers.MatchString(m[1]) {
				t.Errorf("%s: there is no file %s", c.place, m[1])
			}
		}
		for _, m := range path.FindAllStringSubmatch(c.text, -1) {
			if found, _ := filepath.Glob(filepath.Join(top, m[1]+"*")); found == nil {
				t.Errorf("%s: there is no %s", c.place, m[1])
			}
		}
		for _, m := range name.FindAllStringSubmatch(c.text, -1) {
			names := s.declared[m[1]]
			if names == nil && !s.imported[m[1]] && !c.local[m[1]] {
				t.Errorf("%s: there is no package %s", c.place, m[1])
			}
			if names != nil && !names[m[2]] {
				t.Errorf("%s: package %s has no %s", c.place, m[1], m[2])
			}
		}
	}
	member := regexp.MustCompile(`(?:^|[\s("])([A-Z]\w+)\.([A-Z]\w+)`)
	inner := regexp.MustCompile(`(?:^|[\s("])([a-z][a-z0-9]*[A-Z]\w*)\b`)
	for _, c := range s.comments {
		for _, m := range member.FindAllStringSubmatch(c.text, -1) {
			if s.used[m[1]] && !s.used[m[2]] {
				t.Errorf("%s: %s has no %s", c.place, m[1], m[2])
			}
		}
		for _, m := range inner.FindAllStringSubmatch(c.text, -1) {
			if !s.used[m[1]] && !wordsOfOthers[m[1]] {
				t.Errorf("%s: the code has no %s", c.place, m[1])
			}
		}
	}
	for _, file := range s.empty {
		t.Errorf("%s has only comments, which nobody finds: put them above the code that they describe", file)
	}
	if len(s.comments) < 10_000 {
		t.Errorf("only %d comments", len(s.comments))
	}
}

// ofOthers matches files of the kernel and of other tools. Comments name these files without a directory.
var ofOthers = regexp.MustCompile(`^(nf_|nft_|xt_|libxt_|netfilter_|nfnetlink|skbuff|udata|statement|detect)`)

// wordsOfOthers are words of the field, and names of other programs, that look like names of Go.
var wordsOfOthers = map[string]bool{"eBPF": true, "eMule": true, "kB": true, "mDNS": true, "sFlow": true, "seccompProfile": true, "uPlot": true}

func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{files: map[string]bool{}, declared: map[string]map[string]bool{}, imported: map[string]bool{}, used: map[string]bool{}}
	for _, dir := range []string{"bpf", "cmd", "e2e", "internal", "policy", "test", "tools"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			s.files[entry.Name()] = true
			rel, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			switch filepath.Ext(path) {
			case ".go":
				return s.readGo(path, rel)
			case ".c", ".h":
				return s.readC(path, rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *source) readGo(path, rel string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if len(f.Decls) == 0 && filepath.Base(path) != "doc.go" {
		s.empty = append(s.empty, rel)
	}
	local := map[string]bool{}
	for _, group := range f.Comments {
		s.comments = append(s.comments, codeComment{rel, example.ReplaceAllString(group.Text(), ""), local})
	}
	for _, i := range f.Imports {
		imported := strings.Trim(i.Path.Value, `"`)
		s.imported[filepath.Base(imported)] = true
		if i.Name != nil {
			s.imported[i.Name.Name] = true
		}
	}
	names := s.declared[f.Name.Name]
	if names == nil {
		names = map[string]bool{}
		s.declared[f.Name.Name] = names
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			local[id.Name], s.used[id.Name] = true, true
		}
		return true
	})
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Name.Name] = true
			return false
		case *ast.TypeSpec:
			names[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.Field:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		}
		return true
	})
	return nil
}

// example matches a line of example code in a comment.
var example = regexp.MustCompile(`(?m)^\t.*$`)

var commentOfC = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

func (s *source) readC(path, rel string) error {
	text, err := os.ReadFile(path)
	for _, c := range commentOfC.FindAllString(string(text), -1) {
		s.comments = append(s.comments, codeComment{place: rel, text: strings.ReplaceAll(c, "\n", " ")})
	}
	return err
}

// TestHeaders checks that bpf/README.md names exactly the headers in the directory.
func TestHeaders(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "bpf/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9]+\\.h)`").FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
		if _, err := os.Stat(filepath.Join(top, "bpf", m[1])); err != nil {
			t.Error(err)
		}
	}
	headers, err := filepath.Glob(filepath.Join(top, "bpf", "*.h"))
	if err != nil || len(headers) == 0 {
		t.Fatalf("%d headers: %v", len(headers), err)
	}
	for _, h := range headers {
		if !named[filepath.Base(h)] {
			t.Errorf("bpf/README.md does not name %s", filepath.Base(h))
		}
	}
}
