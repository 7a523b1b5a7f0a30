// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// CheckHelp checks the form of a program's help. The help of a command has at most two lines and an example. All other explanations are in a section
// of docs/commands.md.
func CheckHelp(t *testing.T, program *cobra.Command) {
	t.Helper()
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			anchors[strings.ReplaceAll(strings.ToLower(strings.TrimSpace(strings.TrimLeft(title, "#"))), " ", "-")] = true
		}
	}
	checkCommands(t, program, anchors)
}

func checkCommands(t *testing.T, parent *cobra.Command, anchors map[string]bool) {
	for _, c := range parent.Commands() {
		if c.Hidden || parent.Name() == "completion" {
			continue
		}
		page, anchor, _ := strings.Cut(c.Annotations["more"], "#")
		if !strings.HasSuffix(page, "/docs/commands.md") || !anchors[anchor] {
			t.Errorf("%s: no section for the link %q", c.CommandPath(), c.Annotations["more"])
		}
		if c.Name() == "help" || c.Name() == "completion" { // one line covers all of them
			continue
		}
		text, _, _ := strings.Cut(c.Long, "\n\n")
		if n := len(strings.Split(text, "\n")); c.Long == "" || n > 2 {
			t.Errorf("%s: the help has %d lines, want one or two:\n%s", c.CommandPath(), n, text)
		}
		if c.Example == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		checkCommands(t, c, anchors)
	}
}
