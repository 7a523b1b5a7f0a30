// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/policy"
)

func schemaCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON schema of policies, for editors",
		Long: "Schema prints the JSON schema of policies.\n" +
			"Editors use it to check and to complete a policy.",
		Example: "  floodwall schema >policy.schema.json",
		Args:    cli.None,
		RunE: func(*cobra.Command, []string) error {
			e.Text(string(policy.Schema()))
			return nil
		},
	}
}
