// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// forward is a command that was moved to another program. The command of the same name in this program runs that program.
type forward struct {
	word    string // the command's name in this program
	program string
	leading []string // arguments of the other program before the user's
	short   string
	section string // of docs/commands.md
}

// forwards are the commands that were moved to other programs.
var forwards = []forward{
	{"bench", "floodwall-lab", []string{"bench"}, "measure what dropping packets costs on this machine", "floodwall-lab-bench"},
	{"demo", "floodwall-lab", []string{"demo"}, "show a web server under a flood, without and with Floodwall", "floodwall-lab-demo"},
	{"load", "floodwall-lab", []string{"load"}, "ask a web server many times and show what its clients get", "floodwall-lab-load"},
	{"hub", "floodwall-hub", nil, "run and manage the hub of a fleet, through which nodes share bans", "floodwall-hub"},
	{"bgp", "floodwall-bgp", nil, "have the routers upstream drop an attack, by FlowSpec and black holes", "floodwall-bgp"},
}

// name returns the name of the command in the other program.
func (f forward) name() string { return strings.Join(append([]string{f.program}, f.leading...), " ") }

// command returns a command that replaces this process by the other program, with all arguments of the user.
func (f forward) command() *cobra.Command {
	c := &cobra.Command{
		Use:                f.word,
		Short:              f.short + " (" + f.program + ")",
		Long:               fmt.Sprintf("`%s` is a program of its own: this command runs `%s` where it is installed.", f.program, f.name()),
		Example:            fmt.Sprintf("  %s --help", f.name()),
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return f.run(args)
		},
	}
	cli.More(c, f.section)
	return c
}

// run replaces this process by the other program. It returns only if that fails.
func (f forward) run(args []string) error {
	file, err := cli.Find(f.program)
	if errors.Is(err, os.ErrNotExist) {
		return wording.WithHint(fmt.Errorf("`%s` is a command of %s, a program of its own that is not installed here", f.word, f.program),
			cli.Get(f.program))
	}
	if err != nil {
		return err
	}
	name := f.program
	if strings.Contains(os.Args[0], "/") { // the user called this program by its path, so hints show a path
		name = file
	}
	err = syscall.Exec(file, slices.Concat([]string{name}, f.leading, args), os.Environ())
	return fmt.Errorf("running %s: %w", file, err)
}
