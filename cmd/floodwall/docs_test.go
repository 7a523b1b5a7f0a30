// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// top is the path of the repository's root directory.
const top = "../.."

// documents returns the paths of all pages, relative to the root of the repository.
func documents(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			name, err := filepath.Rel(top, file)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, name)
		}
	}
	return list
}

// TestWhom reads the first line below the title of each guide, of each design page, and of the page about policies. It must say whom the page serves.
func TestWhom(t *testing.T) {
	t.Parallel()
	whom := regexp.MustCompile("^(<!-- .*\n)?# .*\n\nFor [^\n]{10,120}\\.\n\n")
	pages := 0
	for _, name := range documents(t) {
		if dir := filepath.Dir(name); dir != "docs/guides" && dir != "docs/design" && name != "docs/policy.md" {
			continue
		}
		pages++
		if text, err := os.ReadFile(filepath.Join(top, name)); err != nil || !whom.Match(text) {
			t.Errorf("%s does not say in a line below its title whom it serves: %v", name, err)
		}
	}
	if pages < 30 {
		t.Errorf("only %d pages were found", pages)
	}
}

// TestDocuments follows the instructions of each document on a host of its own. It writes the files, runs the commands in order, and compares their
// output. The type fence describes the notation.
func TestDocuments(t *testing.T) {
	for _, name := range documents(t) {
		if runs := console(fences(t, name)); len(runs) > 0 {
			t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
				if testutil.Inside(t) {
					follow(t, name)
				}
			})
		}
	}
}

// follow writes the files and runs the commands of one document.
func follow(t *testing.T, name string) {
	dir := t.TempDir()
	h := newDocHost(t, dir)
	for _, f := range fences(t, name) {
		switch f.lang {
		case "console":
			for _, c := range f.commands(t) {
				h.run(t, c)
			}
		default:
			if f.file != "" {
				writeFile(t, filepath.Join(dir, f.file), f.text)
			}
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// notHere are patterns of commands in the documents that this test does not run, with the reasons.
var notHere = []struct{ command, why string }{
	{`^scp `, "the command is in the path already"},
	{`^(sudo )?make( |$)`, "TestMakeTargets looks for the target; .ci/run makes most of them"},
	{`^(sudo )?apt(-get)? install `, "scripts/setup installs what tests need, and TestPackages the package"},
	{`^systemctl `, "e2e/guest boots systemd, and TestPackages runs it"},
	{`^floodwall-lab bench( |$)`, "the tests of cmd/floodwall-lab/experiment run it"},
	{`^floodwall-lab demo`, "the tests of cmd/floodwall-lab/demo run it"},
	{`^journalctl `, "e2e/guest boots systemd"},
}

// runElsewhere reports whether this test leaves a command out.
func runElsewhere(command string) bool {
	for _, e := range notHere {
		if regexp.MustCompile(e.command).MatchString(command) {
			return true
		}
	}
	return false
}
