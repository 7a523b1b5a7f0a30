// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

// commands are the constructors of all commands, in the order of the help: first on and off, then commands that read, then commands that
// change, then commands that other programs have.
var commands = []func(*env) *cobra.Command{
	onCommand, offCommand, initCommand, checkCommand, compileCommand, importCommand, testCommand, explainCommand, suggestCommand, replayCommand,
	applyCommand, confirmCommand, rollbackCommand, statusCommand, topCommand, attacksCommand, doctorCommand, repairCommand, unloadCommand,
	allowCommand, denyCommand, limitCommand, deleteCommand,
	blockCommand, unblockCommand, blockedCommand, temporaryCommand, feedsCommand, captureCommand,
	schemaCommand, unitFilesCommand, daemonCommand, joinCommand, leaveCommand, fleetCommand,
}

// newRoot makes the command line of floodwall.
func newRoot(global *cli.Env) *cobra.Command {
	e := &env{global}
	var all []*cobra.Command
	for _, c := range commands {
		all = append(all, c(e))
	}
	all = append(all, cli.ManCommand(), cli.VersionCommand(global))
	for _, f := range forwards {
		all = append(all, f.command())
	}
	return cli.NewRoot(global, &cobra.Command{
		Use:   "floodwall COMMAND",
		Short: "a firewall against floods",
		Long: "Floodwall drops floods where packets come in. One policy file says what to drop and what to serve;\n" +
			"`floodwall apply` puts it into the kernel, which then filters without a process.",
		Example: "  floodwall on                                   # survey this host, ask once, try the policy, and keep it\n" +
			"  floodwall apply policy.yaml --confirm 60s      # a policy of your own: the kernel undoes it after 60 s\n" +
			"  floodwall confirm                              # unless you confirm, from a second login",
	}, all...)
}
