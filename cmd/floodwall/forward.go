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

// forward is a command that another program has. Its word here runs that program.
type forward struct {
	word    string // of this program
	program string
	leading []string // arguments of that program before those of the command
	short   string
	section string // of docs/commands.md
}

// forwards are the commands of other programs that this one has had.
var forwards = []forward{
	{"bench", "floodwall-lab", []string{"bench"}, "measure what dropping packets costs on this machine", "floodwall-lab-bench"},
	{"demo", "floodwall-lab", []string{"demo"}, "show a web server under a flood, without and with Floodwall", "floodwall-lab-demo"},
	{"load", "floodwall-lab", []string{"load"}, "ask a web server many times and show what its clients get", "floodwall-lab-load"},
	{"hub", "floodwall-hub", nil, "run and manage the hub of a fleet, through which nodes share bans", "floodwall-hub"},
	{"bgp", "floodwall-bgp", nil, "have the routers upstream drop an attack, by FlowSpec and black holes", "floodwall-bgp"},
}

// name is the command as that program has it.
func (f forward) name() string { return strings.Join(append([]string{f.program}, f.leading...), " ") }

// command runs the other program in place of this one. It leaves all arguments to it.
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

// run becomes the other program, and so returns only when it cannot.
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
	if strings.Contains(os.Args[0], "/") { // as it was called: hints show it
		name = file
	}
	err = syscall.Exec(file, slices.Concat([]string{name}, f.leading, args), os.Environ())
	return fmt.Errorf("running %s: %w", file, err)
}
