// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPages writes the manual pages of a program twice. Both results must be equal. There must be one page for each command that the help lists. Text
// that looks like a request or an escape sequence of roff must stay text.
func TestPages(t *testing.T) {
	e, run := &Env{}, func(*cobra.Command, []string) error { return nil }
	first := &cobra.Command{Use: "first FILE", Short: "do it", Long: "First does `it`:\n.in a \\ way\n'and' --so", Example: "  tool first a-b\n  .c", RunE: run}
	first.Flags().Int("count", 3, "`number` of times")
	group := &cobra.Command{Use: "group COMMAND", Short: "have more"}
	Group(group)
	group.AddCommand(&cobra.Command{Use: "second", Short: "do more", RunE: run})
	root := NewRoot(e, &cobra.Command{Use: "tool COMMAND", Short: "a tool", Long: "Tool is one."}, first, group, ManCommand())
	dir := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var pages [2]string
	for i := range pages {
		if err := writePages(root, dir); err != nil {
			t.Fatal(err)
		}
		pages[i] = read("tool-first.8")
	}
	if pages[0] != pages[1] {
		t.Error("the page differs from one run to the next")
	}
	for _, want := range []string{
		".SH NAME\ntool\\-first \\- do it\n", ".SH SYNOPSIS\n.B tool first FILE [flags]\n", "First does it:\n\\&.in a \\e way\n\\&'and' \\-\\-so\n",
		".TP\n.B \\-\\-count number\nnumber of times (default 3)\n", ".SH GLOBAL OPTIONS\n.TP\n.B \\-\\-bpffs directory\n",
		"  tool first a\\-b\n  .c\n", ".SH SEE ALSO\n.BR tool (8)\n", "commands.md#tool\\-first\n",
	} {
		if !strings.Contains(pages[0], want) {
			t.Errorf("the page lacks %q:\n%s", want, pages[0])
		}
	}
	if text := read("tool-group-second.8"); !strings.Contains(text, "Do more.") {
		t.Errorf("without a long text: %s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "tool-man.8")); err == nil {
		t.Error("a hidden command has a page")
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		out, err := exec.Command(groff, "-man", "-ww", "-z", filepath.Join(dir, "tool-first.8")).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("groff: %v: %s", err, out)
		}
	}
}
