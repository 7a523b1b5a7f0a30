// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/guard"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/history"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// historyFlags are the flags of bench history.
type historyFlags struct {
	bounds  string
	program string
	allowed bool
}

// benchHistoryCommand is the command bench history.
func benchHistoryCommand(e *env) *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use:   "history FILE",
		Short: "add what this commit costs to a file that grows, and draw it",
		Long: "History counts instructions as guard does, and adds a line to FILE, in a working tree of git without changes.\n" +
			"A commit that has a line stays as it is. The chart is beside FILE, as .svg.",
		Example: "  floodwall-lab bench history docs/bench/history.jsonl\n  floodwall-lab bench history docs/bench/history.jsonl --program /tmp/run",
		Args:    cli.Exactly(1, "FILE, a history"),
		RunE:    func(c *cobra.Command, args []string) error { return e.benchHistory(c, args[0], f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.bounds, "bounds", ".ci/instructions.json", "`file` of the kinds of packets and their bounds")
	flags.StringVar(&f.program, "program", "", "`results` of `bench program` of this commit: its ratios are added, too")
	flags.BoolVar(&f.allowed, "allowed", false, "add the bounds of earlier commits, by git's history of --bounds")
	return c
}

func (e *env) benchHistory(c *cobra.Command, path string, f historyFlags) error {
	tree := history.Tree{Dir: filepath.Dir(path)}
	add := e.addHead
	if f.allowed {
		add = e.addAllowed
	}
	added, err := add(c, tree, path, f)
	if err != nil {
		return err
	}
	lines, err := history.Read(path)
	if err != nil {
		return err
	}
	e.Note(fmt.Sprintf("%s added, %s in %s", wording.Things(added, "line", "lines"), wording.Things(len(lines), "is", "are"), path))
	if len(lines) == 0 {
		return nil
	}
	return report.WriteFile(chartOf(path), history.Chart(lines).WriteSVG)
}

// chartOf is the path of the chart of a history.
func chartOf(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ".svg" }

// addAllowed adds the bounds of earlier commits to the history. It returns the number of lines that it added.
func (e *env) addAllowed(c *cobra.Command, tree history.Tree, path string, f historyFlags) (added int, err error) {
	lines, err := tree.Bounds(c.Context(), f.bounds)
	for _, l := range lines {
		new, err := history.Append(path, l)
		if err != nil {
			return added, err
		}
		if new {
			added++
		}
	}
	return added, err
}

// addHead adds the costs of the tree's commit, unless the history has a line for it.
func (e *env) addHead(c *cobra.Command, tree history.Tree, path string, f historyFlags) (added int, err error) {
	commit, date, err := tree.Head(c.Context())
	if err != nil {
		return 0, err
	}
	lines, err := history.Read(path)
	if err != nil || history.Has(lines, commit, history.Measured) {
		return 0, err
	}
	changed, err := tree.Changed(c.Context(), path, chartOf(path))
	if err != nil {
		return 0, err
	}
	if len(changed) > 0 {
		return 0, fmt.Errorf("the tree differs from commit %.8s in %s, the first %q: commit or put aside what has changed, as a line is of a commit",
			commit, wording.Things(len(changed), "file", "files"), changed[0])
	}
	if built := cli.Version(); !of(built, commit) {
		return 0, fmt.Errorf("this program is of version %s, the tree of commit %.8s: build it anew (make build)", built, commit)
	}
	l := history.Line{Commit: commit, Date: date, Kind: history.Measured, Instructions: map[string]int{}}
	if f.program != "" {
		r, err := report.Read(f.program)
		if err != nil {
			return 0, err
		}
		if l.OfYardstick = history.Ratios(r); l.OfYardstick == nil || !of(r.Version, commit) {
			return 0, fmt.Errorf("%s: want results of `bench program` by the program of commit %.8s, they are of version %s", f.program, commit, r.Version)
		}
	}
	if err := e.count(c, f.bounds, &l); err != nil {
		return 0, err
	}
	new, err := history.Append(path, l)
	if new {
		added = 1
	}
	return added, err
}

// of reports whether a version was built from the given commit without changes. version has the format of git describe.
func of(version, commit string) bool {
	short := version[strings.LastIndexByte(version, '-')+1:]
	short = strings.TrimPrefix(short, "g")
	return len(short) >= 7 && strings.HasPrefix(commit, short)
}

// count counts the instructions that each kind of packet executes, and writes the counts to l.
func (e *env) count(c *cobra.Command, path string, l *history.Line) error {
	bounds, err := guard.Read(path)
	if err != nil {
		return err
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	machine, err := lab.DescribeMachine()
	if err != nil {
		return err
	}
	findings, err := guard.Measure(c.Context(), bounds, e.Stderr)
	if err != nil {
		return err
	}
	l.Kernel = machine.Kernel
	for i := range findings {
		l.Instructions[findings[i].Kind] = findings[i].Instructions
	}
	return nil
}
