// SPDX-License-Identifier: Apache-2.0

// Floodwall is a firewall against floods: it reads a policy and applies it where packets arrive.
package main

import (
	"os"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot)) }

// env is the environment of a command.
type env struct{ *cli.Env }
