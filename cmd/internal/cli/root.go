package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// commands make the commands, in the order in which help lists them: those that read, then those that change.
var commands = []func(*env) *cobra.Command{
	initCommand, checkCommand, compileCommand, importCommand, testCommand, explainCommand, suggestCommand,
	applyCommand, confirmCommand, rollbackCommand, statusCommand, topCommand, attacksCommand, doctorCommand, repairCommand, unloadCommand,
	blockCommand, unblockCommand, blockedCommand, temporaryCommand, feedsCommand, captureCommand,
	schemaCommand, manCommand, unitFilesCommand, versionCommand,
	benchCommand, demoCommand, loadCommand, daemonCommand, bgpCommand, hubCommand, fleetCommand, joinCommand, leaveCommand,
}

// newRoot makes the command line of floodwall.
func newRoot(e *env) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "floodwall COMMAND",
		Short: "a firewall against floods",
		Long: "Floodwall drops floods where packets come in. One policy file says what to drop and what to serve;\n" +
			"`floodwall apply` puts it into the kernel, which then filters without a process.",
		Example: "  floodwall init policy.yaml                     # write a first policy, and read it\n" +
			"  floodwall apply policy.yaml --confirm 60s      # the kernel undoes it after 60 s\n" +
			"  floodwall confirm                              # unless you confirm, from a second login",
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(c, "`floodwall help` lists the commands", "missing command")
			}
			return unknownCommand(c, args[0])
		},
		RunE:                       func(*cobra.Command, []string) error { return nil },
		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate("{{with (or .Long .Short)}}{{.}}\n\n{{end}}{{.UsageString}}")
	root.SetFlagErrorFunc(flagError)
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	e.globalFlags(root)
	for _, c := range commands {
		root.AddCommand(c(e))
	}
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	addCompletion(root)
	addLinks(root)
	return root
}

// addLinks gives each command the address of its section in docs/commands.md.
func addLinks(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		anchor := strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "floodwall "), " ", "-")
		switch {
		case c.Hidden, parent.Name() == "completion":
			continue
		case slices.Contains([]string{"schema", "version", "completion", "help"}, anchor):
			anchor = "commands"
		}
		c.Annotations = map[string]string{"more": commandsPage + "#" + anchor}
		addLinks(c)
	}
}

// commandsPage has what the help of a command leaves out.
const commandsPage = "https://github.com/floodwall/floodwall/blob/main/docs/commands.md"

// helpCommand explains a command. Cobra's own takes an unknown one for granted.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "explain a command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, fmt.Sprint(args[0]))
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
				return usagef(c, helpHint(c), "missing argument: want bash, zsh or fish")
			}
			return usagef(c, helpHint(c), "no completion for %q: want bash, zsh or fish", args[0])
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

const usageTemplate = `usage: {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{- if .HasAvailableSubCommands}}

commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasExample}}

examples:
{{.Example}}{{end}}
{{- with index .Annotations "more"}}

more: {{.}}{{end}}
{{- if .HasAvailableLocalFlags}}

flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableInheritedFlags}}

global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`
