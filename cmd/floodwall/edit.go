// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/policy/shorthand"
)

// editFlags are the flags of the commands that edit the policy file.
type editFlags struct {
	file, before, confirm   string
	trial                   time.Duration // parsed from confirm
	reject                  bool
	dryRun, noApply, forced bool
}

// editTrial is the trial of an edit that can affect this SSH session, unless --confirm says another time.
const editTrial = "60s"

func allowCommand(e *env) *cobra.Command {
	return editCommand(e, shorthand.Allow, &cobra.Command{
		Use:        "allow PORT|[proto P] [from A [port P]] [to A [port P]] [name NAME]",
		SuggestFor: []string{"open", "route"},
		Short:      "open a port: add a service to the policy file, and apply it",
		Long: "Allow adds a service to the file of the policy that runs, prints the difference, checks the policy, and applies it.\n" +
			"With `to`, or without a port, it adds a rule that passes. All other bytes of the file stay.",
		Example: "  floodwall allow tcp/8080\n" +
			"  floodwall allow tcp/22 from 203.0.113.0/24 name ssh-office",
	})
}

func denyCommand(e *env) *cobra.Command {
	var f editFlags
	c := editCommandOf(e, shorthand.Deny, &f, &cobra.Command{
		Use:        "deny PORT|ADDRESS|[proto P] [from A [port P]] [to A [port P]] [for TIME]",
		SuggestFor: []string{"reject", "insert", "prepend"},
		Short:      "drop packets: add a rule to the policy file, and apply it; with a time, ban",
		Long: "Deny adds a rule that drops to the file of the policy that runs, and applies it. With `for TIME` the file stays as it is:\n" +
			"an address is banned as by `floodwall block`, and anything else becomes a temporary rule.",
		Example: "  floodwall deny tcp/25\n" +
			"  floodwall deny 198.51.100.7 for 2h",
	})
	c.Flags().BoolVar(&f.reject, "reject", false, "answer with a TCP reset or an ICMP error in place of dropping")
	return c
}

func limitCommand(e *env) *cobra.Command {
	return editCommand(e, shorthand.Limit, &cobra.Command{
		Use:   "limit PORT|[proto P] [from A [port P]] [to A [port P]] [name NAME]",
		Short: "limit new connections of each address: add a rule to the policy file, and apply it",
		Long: "Limit adds a rule that drops TCP connections of an address above six at once and one in five seconds after that, and\n" +
			"applies it. Packets of open connections do not count. A service must open the port: `floodwall allow`.",
		Example: "  floodwall limit ssh",
	})
}

func deleteCommand(e *env) *cobra.Command {
	return editCommand(e, shorthand.Any, &cobra.Command{
		Use:        "delete NAME|[allow|deny|limit] PORT|…",
		SuggestFor: []string{"close"},
		Short:      "remove a rule or a service from the policy file, and apply it",
		Long: "Delete removes one rule or service from the file of the policy that runs, and applies it. It finds the entry by its name, or by\n" +
			"the line that adds it. Of several ports or addresses in an entry it removes those of the line. Comments above the entry stay.",
		Example: "  floodwall delete tcp/8080\n" +
			"  floodwall delete deny tcp/25",
	})
}

// editCommand completes a command that edits the policy file.
func editCommand(e *env, verb shorthand.Verb, c *cobra.Command) *cobra.Command {
	return editCommandOf(e, verb, new(editFlags), c)
}

func editCommandOf(e *env, verb shorthand.Verb, f *editFlags, c *cobra.Command) *cobra.Command {
	c.Args = cli.Some("a port, an address or a name")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if f.trial, err = trialTime(c, f.confirm); err != nil {
			return err
		}
		o := &editing{env: e, editFlags: f, command: c, words: args}
		if verb == shorthand.Any {
			return o.delete(c.Context())
		}
		if f.reject {
			verb = shorthand.Reject
		}
		return cli.UsageOf(c, o.add(c.Context(), verb))
	}
	flags := c.Flags()
	flags.StringVar(&f.file, "file", "", "`file` of the policy (default that of the policy that runs, else "+operate.UsualPolicy+")")
	if verb != shorthand.Any {
		flags.StringVar(&f.before, "before", "", "`name` of the rule or service before which the new one stands (default behind all)")
	}
	flags.StringVar(&f.confirm, "confirm", "", "return to the previous policy and file after this `time` unless confirmed (default "+editTrial+" when the edit can affect this SSH session)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the difference, and change nothing")
	flags.BoolVar(&f.noApply, "no-apply", false, "change the file only")
	flags.BoolVar(&f.forced, "force", false, "apply at once, even what would cut this SSH session")
	return c
}
