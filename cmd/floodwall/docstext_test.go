// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMakeTargets checks that the Makefile has all targets that the documents name.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^\\$ (?:sudo )?|`)make ([a-z][a-z0-9-]*)")
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", name, m[1])
			}
		}
	}
}

// TestLinks checks that the documents' links lead to existing files and headings.
func TestLinks(t *testing.T) {
	checkLinks(t, top, documents(t))
}

// checkLinks checks that links of documents in a directory lead to existing files and headings.
func checkLinks(t *testing.T, dir string, names []string) {
	t.Helper()
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			target, err := os.ReadFile(filepath.Join(dir, to))
			if info, statErr := os.Stat(filepath.Join(dir, to)); err != nil && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s: the link %s leads nowhere", name, m[0])
			}
			if m[2] != "" && !anchors(string(target))[m[2][1:]] {
				t.Errorf("%s: %s has no heading for the link %s", name, to, m[0])
			}
		}
	}
}

// anchors returns the link targets of a document: its headings, in GitHub's form, and elements with an id.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list[strings.ReplaceAll(words, " ", "-")] = true
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]*)">`).FindAllStringSubmatch(text, -1) {
		list[m[1]] = true
	}
	return list
}

// TestPaths checks that the files and packages that documents name in code exist.
func TestPaths(t *testing.T) {
	path := regexp.MustCompile("`((?:internal|bpf|cmd|scripts|policy|docs)/[A-Za-z0-9_./*-]+)`")
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range path.FindAllStringSubmatch(string(text), -1) {
			if found, err := filepath.Glob(filepath.Join(top, m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
}

// retired are words that the project no longer uses, because a reader would not know what they mean here.
var retired = regexp.MustCompile(`(?i)\b(octets?|ipt|xt|former|begun|prospects?|modesty|silenced|occupants?|house|rooms?|walks?|walked|bars? missed)\b`)

// TestWords checks that the documents use the field's words.
func TestWords(t *testing.T) {
	for _, name := range documents(t) {
		checkWords(t, name, retired, "the former") // and the latter
	}
}

// retiredInCode are the same words, also as parts of names.
var retiredInCode = regexp.MustCompile(`(?i)octet|occupant|silenced|modesty|\bprospects?\b|\bformer|begun|\bhouse\b|\brooms?\b|\bwalk(s|ed|ers?)?\b`)

// keptNames are names that contain a retired word but must stay. Other versions and users' scripts know them, or the standard library defines them.
var keptNames = []string{"the former", "The former", `json:"octets"`, `"octets": 8`, "IpExt InOctets", "__u64 octets;", "->octets", "one-octet", // formats
	`namePrefix() + "begun"`, `chain = "begun"`, `tables, "begun"`, "Begun ", "Begun:", ".Begun", "filepath.Walk("}

// unchecked are directories that still contain retired words.
var unchecked = []string{"cmd/floodwall-lab/experiment", "internal/compile/nftables", "internal/compile/iptables"}

// TestWordsOfCode checks that the code, its comments, its messages and its tests use the field's words.
func TestWordsOfCode(t *testing.T) {
	checked := 0
	for _, dir := range []string{"bpf", "cmd", "e2e", "internal", "policy", "test", "tools", "scripts", "Makefile"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			if entry.IsDir() && slices.Contains(unchecked, name) {
				return fs.SkipDir
			}
			if entry.IsDir() || slices.Contains(unchecked, name) || strings.HasSuffix(name, ".o") || strings.HasSuffix(name, ".o.gz") || name == "cmd/floodwall/docstext_test.go" {
				return nil
			}
			checked++
			checkWords(t, name, retiredInCode, keptNames...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 800 {
		t.Errorf("only %d files were found", checked)
	}
}

// checkWords checks that a file of the repository does not contain the words. Texts in kept may contain them.
func checkWords(t *testing.T, name string, words *regexp.Regexp, kept ...string) {
	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, k := range kept {
			line = strings.ReplaceAll(line, k, "")
		}
		if word := words.FindString(line); word != "" {
			t.Errorf("%s:%d: the word %q: %s", name, i+1, word, line)
		}
	}
}
