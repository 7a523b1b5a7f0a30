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
	// A second signal ends the process at once, which what runs survives at every point. There is no stop on the way out:
	// a signal at the very end must not hide the exit status.
	context.AfterFunc(ctx, stop)
	e := &Env{
		Stdin: os.Stdin, Getenv: os.Getenv, CommandLine: os.Args,
		UI: UI{Stdout: os.Stdout, Stderr: os.Stderr},
	}
	return e.Exit(newRoot(e).ExecuteContext(ctx))
}

// NewRoot completes the command line of a program: root has its name and what it is, and commands are in the order in which help lists them.
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

// Group makes c a command that only has commands.
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
	c.RunE = func(*cobra.Command, []string) error { return nil } // cobra asks Args only of what runs
}

// moreKey is the annotation of a command with the address of what its help leaves out.
const moreKey = "more"

// More gives a command the address of a section of docs/commands.md, for one that has none of its own.
func More(c *cobra.Command, section string) {
	c.Annotations = map[string]string{moreKey: CommandsPage + "#" + section}
}

// addLinks gives each command the address of its section in docs/commands.md.
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

// CommandsPage has what the help of a command leaves out.
const CommandsPage = "https://github.com/floodwall/floodwall/blob/main/docs/commands.md"

// helpCommand explains a command. Cobra's own takes an unknown one for granted.
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

// addCompletion keeps of cobra's completions those for the shells that Linux hosts have.
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
		c.RunE = func(*cobra.Command, []string) error { return nil } // cobra asks Args only of what runs
		for _, shell := range c.Commands() {
			if shell.Name() == "powershell" {
				c.RemoveCommand(shell)
			}
			shell.Short = "for " + shell.Name()
		}
	}
}

// usage writes how a command is used. A template for cobra would need text/template, which asks for methods by name: then the linker keeps
// every method of every package, which are 4 MB.
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
