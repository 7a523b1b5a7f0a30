package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakeTargets has the documents name only targets that the Makefile has.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^\\$ (?:sudo )?|`)make ([a-z][a-z-]*)")
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

// TestLinks has links of the documents lead to files that are there, and to their headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			target, err := os.ReadFile(filepath.Join(top, to))
			if info, statErr := os.Stat(filepath.Join(top, to)); err != nil && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s: the link %s leads nowhere", name, m[0])
			}
			if m[2] != "" && !anchors(string(target))[m[2][1:]] {
				t.Errorf("%s: %s has no heading for the link %s", name, to, m[0])
			}
		}
	}
}

// anchors are the places of a document that links can name: its headings, in GitHub's form, and what has an id.
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

// TestPaths has the files and packages that documents name in code be there.
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

// retired are words that the project no longer uses: a reader does not know what they mean here.
var retired = regexp.MustCompile(`(?i)\b(octets?|ipt|xt|former|begun|prospects?|modesty|silenced|occupants?|house|rooms?|walks?|walked|bars? missed)\b`)

// TestWords has the documents use the field's words.
func TestWords(t *testing.T) {
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word := retired.FindString(strings.ReplaceAll(line, "the former", "")); word != "" { // and the latter
				t.Errorf("%s:%d: the word %q: %s", name, i+1, word, line)
			}
		}
	}
}
