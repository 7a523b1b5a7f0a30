// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/policies"
)

func fleetCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet COMMAND",
		Short: "have this node apply the policies of its fleet",
		Long: "Fleet says whose policies this node of a fleet applies. Where floodwall-hub is installed it also releases policies, as\n" +
			"`floodwall-hub fleet` does.",
		Example: "  floodwall fleet trust ACK5…",
	}
	cli.Group(c)
	c.AddCommand(fleetTrust(e))
	for _, f := range releases {
		c.AddCommand(f.command())
	}
	return c
}

// releases are the subcommands of fleet that run on the host that releases policies.
var releases = []forward{
	{"key", "floodwall-hub", []string{"fleet", "key"}, "make the key that signs the policies of a fleet", "floodwall-hub-fleet-key"},
	{"push", "floodwall-hub", []string{"fleet", "push"}, "sign a policy and its lists, and release them to the nodes", "floodwall-hub-fleet-push"},
	{"rollback", "floodwall-hub", []string{"fleet", "rollback"}, "release the files of an earlier version again", "floodwall-hub-fleet-rollback"},
	{"status", "floodwall-hub", []string{"fleet", "status"}, "show which policy each node has", "floodwall-hub-fleet-status"},
}

func fleetTrust(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "trust KEY",
		Short: "have this node apply the policies that a key has signed",
		Long: "Trust gives a node that has joined a fleet the public key of its policies. `join --policy-key` does so when the node joins.\n" +
			"`trust none` has the node take no more policies of the fleet.",
		Example: "  floodwall fleet trust ACK5…",
		Args:    cli.Exactly(1, "KEY, as `floodwall-hub fleet key` printed it, or none"),
		RunE: func(_ *cobra.Command, args []string) error {
			if !cli.Privileged() {
				return &cli.PrivilegeError{CommandLine: e.CommandLine}
			}
			state, err := e.OwnState()
			if err != nil {
				return err
			}
			if args[0] == "none" {
				if err := node.Trust(state, ""); err != nil {
					return err
				}
				e.Println("this node takes no policies of the fleet")
				return nil
			}
			if err := node.Trust(state, args[0]); err != nil {
				return err
			}
			e.Println("this node applies policies that are signed by the key with the fingerprint %s", policies.Fingerprint(args[0]))
			return nil
		},
	}
}
