// SPDX-License-Identifier: Apache-2.0

// Package cli is the common part of the command lines of all programs of Floodwall: output and messages (UI), the flags that name an instance (Env),
// usage errors (Usagef), help, completion, version and manual pages (NewRoot), and the search for the other programs (Find). It has no command that
// does a program's own work: those are in cmd/floodwall, cmd/floodwall-lab, cmd/floodwall-hub and cmd/floodwall-bgp.
//
//	func main() { os.Exit(cli.Main(newRoot)) }
//
//	func newRoot(e *cli.Env) *cobra.Command {
//		return cli.NewRoot(e, &cobra.Command{Use: "floodwall-hub COMMAND"}, runCommand(e), cli.VersionCommand(e), cli.ManCommand())
//	}
package cli
