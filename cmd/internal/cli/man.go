// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ManCommand returns the command that writes the manual pages of a program.
func ManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write the manual pages to a directory",
		Hidden: true,
		Args:   Exactly(1, "DIR, a directory"),
		RunE:   func(c *cobra.Command, args []string) error { return writePages(c.Root(), args[0]) },
	}
}

// writePages writes a page for each command, in man(7). The generator of cobra would add a Markdown parser to every program.
func writePages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	date := "" // the commit's date, so that the same source makes the same pages
	if at, err := time.Parse(time.RFC3339, buildSetting("vcs.time")); err == nil {
		date = at.UTC().Format(time.DateOnly)
	}
	pages := []*cobra.Command{root}
	for len(pages) > 0 {
		c := pages[0]
		pages = append(pages[1:], available(c)...)
		if err := os.WriteFile(filepath.Join(dir, pageName(c)+".8"), []byte(page(c, date)), 0o644); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// available returns the commands of c that the help lists. It leaves out the commands that run another program, because that program has their pages.
func available(c *cobra.Command) (list []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.DisableFlagParsing {
			list = append(list, sub)
		}
	}
	return list
}

// page returns the manual page of a command.
func page(c *cobra.Command, date string) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s", title, text)
		}
	}
	fmt.Fprintf(&b, ".TH %q 8 %q Floodwall \"System administration\"\n.nh\n.ad l\n", strings.ToUpper(pageName(c)), date)
	section("NAME", roff(pageName(c)+" - "+c.Short))
	section("SYNOPSIS", ".B "+roff(c.UseLine()))
	about, table, _ := strings.Cut(cmp.Or(c.Long, strings.ToUpper(c.Short[:1])+c.Short[1:]+"."), "\n\n")
	section("DESCRIPTION", roff(about))
	if table != "" {
		b.WriteString(example(table))
	}
	section("OPTIONS", options(c.NonInheritedFlags()))
	section("GLOBAL OPTIONS", options(c.InheritedFlags()))
	section("EXAMPLES", example(c.Example))
	section("SEE ALSO", seeAlso(c))
	return b.String()
}

// options returns the flags of a command in the format of man(7).
func options(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n.B " + roff(strings.TrimSpace(name+" "+value)))
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += " (default " + f.DefValue + ")"
		}
		b.WriteString(roff(usage))
	})
	return b.String()
}

// seeAlso returns references to the pages of the parent, of the subcommands and of the policy, and to the documents.
func seeAlso(c *cobra.Command) string {
	var names []string
	if c.HasParent() {
		names = append(names, pageName(c.Parent()))
	}
	for _, sub := range available(c) {
		names = append(names, pageName(sub))
	}
	text := ""
	for _, name := range names {
		text += ".BR " + roff(name+" (8)")
	}
	text += ".BR " + roff("floodwall-policy (5)")
	if more := c.Annotations[moreKey]; more != "" {
		text += ".PP\n" + roff(more)
	}
	return text
}

// example returns preformatted text in the format of man(7).
func example(text string) string {
	if text == "" {
		return ""
	}
	return ".PP\n.nf\n" + roff(text) + ".fi\n"
}

// roff escapes text, so that roff interprets no part of it as a request or an escape sequence.
func roff(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "").Replace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
