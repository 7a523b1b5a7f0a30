package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp holds the form of help: at most two lines and an example, and the rest in a section of docs/commands.md.
func TestHelp(t *testing.T) {
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
	short := map[string]bool{"help": true, "completion": true} // a line says all of them
	checkHelp(t, newRoot(&env{}), anchors, short)
}

func checkHelp(t *testing.T, parent *cobra.Command, anchors, short map[string]bool) {
	for _, c := range parent.Commands() {
		if c.Hidden || parent.Name() == "completion" {
			continue
		}
		page, anchor, _ := strings.Cut(c.Annotations["more"], "#")
		if page != commandsPage || !anchors[anchor] {
			t.Errorf("%s: no section for the link %q", c.CommandPath(), c.Annotations["more"])
		}
		if short[c.Name()] {
			continue
		}
		text, _, _ := strings.Cut(c.Long, "\n\n")
		if n := len(strings.Split(text, "\n")); c.Long == "" || n > 2 {
			t.Errorf("%s: the help has %d lines, want one or two:\n%s", c.CommandPath(), n, text)
		}
		if c.Example == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		checkHelp(t, c, anchors, short)
	}
}
