// Floodwall is a firewall against floods: it reads a policy and puts it where packets come in.
package main

import (
	"os"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot)) }

// env is what a command has of the world around it.
type env struct{ *cli.Env }
