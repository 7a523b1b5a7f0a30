// Floodwall-lab measures, shows and proves what Floodwall does: benchmarks, a demonstration, a load of requests, and proofs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/lab/experiment"
)

func main() {
	experiment.Roles() // ends this process if it is one of a lab's
	os.Exit(cli.Main(newRoot))
}

// env is what a command has of the world around it.
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
