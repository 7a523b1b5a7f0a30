// SPDX-License-Identifier: Apache-2.0

// Floodwall-hub is the hub of a fleet: it shares the bans and the policies of hosts that run floodwall.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot)) }

// env is the environment of a command.
type env struct{ *cli.Env }

// newRoot makes the command line of floodwall-hub.
func newRoot(global *cli.Env) *cobra.Command {
	e, f := &env{global}, &hubFlags{}
	root := &cobra.Command{
		Use:   "floodwall-hub COMMAND",
		Short: "run and manage the hub of a fleet, through which nodes share bans",
		Long: "Floodwall-hub runs the middle of a fleet, with a NATS server in it, admits nodes, and releases their policy. It needs no rights of root.\n" +
			"Nodes enforce their own bans whether or not they reach a hub.",
		Example: "  floodwall-hub init --address 192.0.2.10\n  floodwall-hub run\n  floodwall-hub invite web-1",
	}
	root.PersistentFlags().StringVar(&f.dir, "dir", defaultHub, "state `directory` of the hub, or for all commands but run a copy of its hub.json, ca.pem and admin.nk")
	return cli.NewRoot(global, root, hubInit(e, f), hubRun(e, f), hubInvite(e, f), hubStatus(e, f), hubNodes(e, f), hubView(e, f),
		hubRevoke(e, f), hubBan(e, f), hubUnban(e, f), fleetCommand(e, f), cli.ManCommand(), cli.VersionCommand(global))
}
