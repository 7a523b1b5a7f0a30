// SPDX-License-Identifier: Apache-2.0

// Floodwall-lab measures, demonstrates and proves the effects of Floodwall. It has benchmarks, a demonstration, an HTTP load generator, and proofs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/experiment"
	"github.com/floodwall/floodwall/cmd/internal/cli"
)

func main() {
	experiment.Roles() // runs and exits if this process has a role in a lab
	os.Exit(cli.Main(newRoot))
}

// env is the environment of a command.
type env struct{ *cli.Env }

// newRoot makes the command line of floodwall-lab.
func newRoot(global *cli.Env) *cobra.Command {
	e := &env{global}
	return cli.NewRoot(global, &cobra.Command{
		Use:     "floodwall-lab COMMAND",
		Short:   "measure and show what Floodwall does",
		Long:    "Floodwall-lab measures what filtering costs, and shows a server under a flood, in network namespaces of its own.",
		Example: "  floodwall-lab demo\n  floodwall-lab bench all",
	}, benchCommand(e), demoCommand(e), loadCommand(e), proveCommand(e), cli.ManCommand(), cli.VersionCommand(global))
}
