// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// common are the licences whose text each Debian system has.
var common = []string{"Apache-2.0", "GPL-2", "MPL-2.0"}

// licences tells a licence by words that only it has.
var licences = []struct{ name, has, too string }{
	{"Apache-2.0", "apache license version 2.0, january 2004", ""},
	{"MPL-2.0", "mozilla public license version 2.0", ""},
	{"BSD-3-Clause", "redistribution and use in source and binary forms", "specific prior written permission"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms", ""},
	{"Expat", "permission is hereby granted, free of charge, to any person", ""},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee", ""},
}

var (
	licenceFile = regexp.MustCompile(`^(LICEN[CS]E|COPYING)([.-].*)?$`)
	// holder matches a line that says whose the copyright is. The template in the Apache licence has brackets, and its text no year.
	holder = regexp.MustCompile(`(?i)^[\s/*#;]*(?:\w+ )?copyright\s*(?:\(c\)|©)?\s*:?\s*((?:\d{4}|.*\b(?:authors|inc|llc)\b)[^\[{]*)$`)
	// apache matches the text of the licence among others in a file.
	apache = regexp.MustCompile(`(?s)[ \t]*Apache License\s+Version 2\.0, January 2004.*?limitations under the License\.`)
	space  = regexp.MustCompile(`\s+`)
)

// paragraphs are the files and the licences of debian/copyright, while they are found.
type paragraphs struct {
	w     io.Writer
	texts map[string]string // by name
	names map[string]string // by text without holders and white space
	order []string
}

func writeCopyright(w io.Writer, tree string) error {
	own, err := os.ReadFile(filepath.Join(tree, "packaging/copyright"))
	if err != nil {
		return err
	}
	p := paragraphs{w, map[string]string{}, map[string]string{}, nil}
	for _, line := range strings.Split(string(own), "\n") {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "Comment:") {
			fmt.Fprintln(w, line) // without the texts of licences, which follow below
		}
	}
	for _, name := range []string{"Apache-2.0", "GPL-2"} {
		p.add(name, name, "")
	}
	text, err := os.ReadFile(filepath.Join(tree, "LICENSES/BSD-2-Clause.txt"))
	if err != nil {
		return err
	}
	if _, err := p.licence(text, "floodwall"); err != nil {
		return err
	}
	if err := p.file(tree, "internal/daemon/api/static/uplot.* debian/missing-sources/uplot.js", "uPlot", "LICENSES/MIT-uPlot.txt"); err != nil {
		return err
	}
	if err := p.vendored(tree); err != nil {
		return err
	}
	for _, name := range p.order {
		fmt.Fprintf(w, "License: %s\n", name)
		if slices.Contains(common, name) {
			fmt.Fprintf(w, " On Debian systems, the text is in /usr/share/common-licenses/%s.\n\n", name)
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(p.texts[name]), "\n") {
			if line = strings.TrimSpace(line); line == "" {
				line = "."
			}
			fmt.Fprintf(w, " %s\n", line)
		}
		fmt.Fprintln(w)
	}
	return nil
}

// vendored writes a paragraph for each directory below vendor/ that has a licence. Those of a directory within another follow it, as the last
// paragraph that matches a file counts. Each module must have one.
func (p *paragraphs) vendored(tree string) error {
	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(tree, "vendor"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		var files []string
		dir, _ := filepath.Rel(tree, path)
		for _, e := range entries {
			if !e.IsDir() && licenceFile.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil
		}
		found[dir] = true
		return p.file(tree, dir+"/*", strings.ReplaceAll(strings.TrimPrefix(dir, "vendor/"), "/", "-"), files...)
	})
	if err != nil {
		return err
	}
	modules, err := os.ReadFile(filepath.Join(tree, "vendor/modules.txt"))
	if err != nil {
		return err
	}
	for _, m := range regexp.MustCompile(`(?m)^# (\S+) v`).FindAllSubmatch(modules, -1) {
		dir := filepath.Join("vendor", string(m[1]))
		if _, err := os.Stat(filepath.Join(tree, dir)); err != nil {
			continue // only a version of it is needed, for the choice of versions
		}
		for !found[dir] {
			if dir = filepath.Dir(dir); dir == "." {
				return fmt.Errorf("%s has no licence: look which one it has, and name it here", m[1])
			}
		}
	}
	return nil
}

// file writes the paragraph of some files. Their licences are in the files named.
func (p *paragraphs) file(tree, pattern, module string, files ...string) error {
	var text []byte
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			return err
		}
		text = append(append(text, content...), '\n')
	}
	name, err := p.licence(text, module)
	if err != nil {
		return fmt.Errorf("%s: %w", files[0], err)
	}
	holders := holdersOf(text)
	if strings.HasPrefix(pattern, "vendor/") {
		if holders, err = holdersBelow(filepath.Join(tree, filepath.Dir(files[0])), holders); err != nil {
			return err
		}
	}
	if len(holders) == 0 {
		holders = []string{"the authors of " + module}
	}
	fmt.Fprintf(p.w, "Files: %s\nCopyright: %s\nLicense: %s\n\n", pattern, strings.Join(holders, "\n "), name)
	return nil
}

// holdersOf returns what the lines of a text say about copyright.
func holdersOf(text []byte) (list []string) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := holder.FindStringSubmatch(lines.Text()); m != nil {
			name, _, _ := strings.Cut(strings.TrimSpace(m[1]), " All rights reserved")
			if name = space.ReplaceAllString(strings.TrimRight(name, " .,*/"), " "); !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// holdersBelow adds the holders that the first lines of the files in a directory and below name.
func holdersBelow(dir string, list []string) ([]string, error) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := bytes.Index(text, []byte("\npackage ")); at >= 0 {
			text = text[:at]
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".s" && !strings.HasPrefix(d.Name(), "NOTICE") {
			return nil
		}
		for _, name := range holdersOf(text) {
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
		return nil
	})
	return list, err
}

// licence returns the name of a licence. Texts that differ have different names.
func (p *paragraphs) licence(text []byte, module string) (string, error) {
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), holder.MatchString)
	plain := strings.TrimSpace(space.ReplaceAllString(strings.ToLower(strings.Join(lines, " ")), " "))
	var is []string
	at := len(plain)
	for _, l := range licences {
		if strings.Contains(plain, l.has) && strings.Contains(plain, l.too) && (l.name != "BSD-2-Clause" || !slices.Contains(is, "BSD-3-Clause")) {
			is = append(is, l.name)
			at = min(at, strings.Index(plain, l.has))
		}
	}
	plain = plain[at:] // without a title
	switch {
	case len(is) == 0:
		return "", errors.New("a licence that packaging/tools/source does not know: add it there, if Debian's main may have it")
	case len(is) == 1 && slices.Contains(common, is[0]):
		p.add(is[0], is[0], "")
		return is[0], nil
	case p.names[plain] != "":
		return p.names[plain], nil
	}
	name := strings.Join(is, "-and-")
	if p.texts[name] != "" || len(is) > 1 {
		name += "-" + module
	}
	p.add(name, plain, apache.ReplaceAllString(strings.Join(lines, "\n"), "Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0"))
	return name, nil
}

// add adds a licence, unless it is there.
func (p *paragraphs) add(name, plain, text string) {
	if p.names[plain] == "" {
		p.names[plain], p.texts[name] = name, text
		p.order = append(p.order, name)
	}
}
