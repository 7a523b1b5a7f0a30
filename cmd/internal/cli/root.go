// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs the command line of this process, and returns the exit status.
func Main(newRoot func(*Env) *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, which leaves the running policy intact at every point. The handler stays until the process exits.
	// Otherwise a signal at the very end would change the exit status.
	context.AfterFunc(ctx, stop)
	e := &Env{
		Stdin: os.Stdin, Getenv: os.Getenv, CommandLine: os.Args,
		UI: UI{Stdout: os.Stdout, Stderr: os.Stderr},
	}
	return e.Exit(newRoot(e).ExecuteContext(ctx))
}

// NewRoot completes the command line of a program. root has the name and the description of the program. commands are in the order of the help.
func NewRoot(e *Env, root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cobra.EnableCommandSorting = false
	root.SilenceErrors, root.SilenceUsage, root.DisableFlagsInUseLine = true, true, true
	root.SuggestionsMinimumDistance = 2
	Group(root)
	root.SetUsageFunc(usage)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", cmp.Or(c.Long, c.Short), c.UsageString())
	})
	root.SetFlagErrorFunc(flagError)
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	e.globalFlags(root)
	root.AddCommand(commands...)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	addCompletion(root)
	addLinks(root)
	return root
}

// Group makes c a command that only has subcommands.
func Group(c *cobra.Command) {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return UnknownCommand(c, args[0])
		}
		if !c.HasParent() {
			return Usagef(c, fmt.Sprintf("`%s help` lists the commands", c.Name()), "missing command")
		}
		return Usagef(c, HelpHint(c), "missing command")
	}
	c.RunE = func(*cobra.Command, []string) error { return nil } // cobra checks Args only of commands with a Run function
}

// moreKey is the key of a command's annotation that has the address of further documentation.
const moreKey = "more"

// More links a command to a section of docs/commands.md. It is for commands that have no section of their own name.
func More(c *cobra.Command, section string) {
	c.Annotations = map[string]string{moreKey: CommandsPage + "#" + section}
}

// addLinks links each command to its section in docs/commands.md.
func addLinks(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || parent.Name() == "completion" {
			continue
		}
		if c.Annotations[moreKey] == "" {
			section := strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "floodwall "), " ", "-")
			if slices.Contains([]string{"schema", "version", "completion", "help"}, c.Name()) {
				section = "commands"
			}
			More(c, section)
		}
		addLinks(c)
	}
}

// CommandsPage is the address of docs/commands.md.
const CommandsPage = "https://github.com/floodwall/floodwall/blob/main/docs/commands.md"

// helpCommand returns the command that prints the help of a command. Cobra's own help command does not fail for an unknown command.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "explain a command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return UnknownCommand(root, fmt.Sprint(args[0]))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// addCompletion keeps cobra's completions for bash, zsh and fish, and removes those for other shells.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use = "completion SHELL"
		c.Short, c.Long = "print a completion script for a shell: bash, zsh or fish", ""
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Usagef(c, HelpHint(c), "missing argument: want bash, zsh or fish")
			}
			return Usagef(c, HelpHint(c), "no completion for %q: want bash, zsh or fish", args[0])
		}
		c.RunE = func(*cobra.Command, []string) error { return nil } // cobra checks Args only of commands with a Run function
		for _, shell := range c.Commands() {
			if shell.Name() == "powershell" {
				c.RemoveCommand(shell)
			}
			shell.Short = "for " + shell.Name()
		}
	}
}

// usage writes how to use a command. Cobra's template would need text/template, which looks up methods by name. Then the linker keeps every method of
// every package, which adds 4 MB.
func usage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("usage: " + c.UseLine())
	if c.HasAvailableSubCommands() {
		b.WriteString("\n\ncommands:")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	for _, part := range []struct{ title, text string }{
		{"examples:\n", c.Example},
		{"more: ", c.Annotations[moreKey]},
		{"flags:\n", c.LocalFlags().FlagUsages()},
		{"global flags:\n", c.InheritedFlags().FlagUsages()},
	} {
		if text := strings.TrimRight(part.text, " \n"); text != "" {
			b.WriteString("\n\n" + part.title + text)
		}
	}
	_, err := fmt.Fprintln(c.OutOrStderr(), b.String())
	return err
}
