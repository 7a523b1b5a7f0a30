// SPDX-License-Identifier: Apache-2.0

// Floodwall-bgp speaks BGP with the routers upstream and announces the packets that these routers must drop.
package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

func main() { os.Exit(cli.Main(newRoot)) }

// env is the environment of a command.
type env struct{ *cli.Env }

// newRoot makes the command line of floodwall-bgp.
func newRoot(global *cli.Env) *cobra.Command {
	e, run := &env{global}, ""
	root := &cobra.Command{
		Use:   "floodwall-bgp COMMAND",
		Short: "have the routers upstream drop an attack, by FlowSpec and black holes",
		Long: "Floodwall-bgp speaks BGP with the routers of the policy's `upstream`, and announces what they are to drop.\n" +
			"`floodwall-bgp run` is a process without rights; the other commands need root.",
		Example: "  floodwall-bgp status\n  floodwall-bgp announce 192.0.2.7 --proto udp --sport 53 --for 10m",
	}
	root.PersistentFlags().StringVar(&run, "run", "", "`directory` of the socket (default "+bgp.DefaultDir+" for the default --bpffs)")
	dir := func() string { return cmp.Or(run, bgp.Dir(e.BPFFS, datapath.DefaultDir)) }
	return cli.NewRoot(global, root, bgpStatus(e, dir), bgpAnnounce(e, dir), bgpWithdraw(e, dir), bgpRun(e, dir),
		cli.ManCommand(), cli.VersionCommand(global))
}
