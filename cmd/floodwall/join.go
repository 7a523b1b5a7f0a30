// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/policies"
	fleetwire "github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func joinCommand(e *env) *cobra.Command {
	var f joinFlags
	c := &cobra.Command{
		Use:   "join INVITATION",
		Short: "make this host a node of a fleet, which shares bans",
		Long: "Join makes this host a node of a fleet. INVITATION is the word that `floodwall-hub invite` prints. It can be used once.\n" +
			"From then on the daemon shares the bans of this host with the fleet, and enters those of other nodes.",
		Example: "  floodwall join eyJuIjoid2ViLTEi…\n  floodwall join --name web-1 --nats tls://nats.example:4222 --controller UA3K…",
		Args:    cli.UpTo(1, "INVITATION"),
		RunE:    func(c *cobra.Command, args []string) error { return e.join(c, args, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.Set, "set", "", "dynamic `set` for bans of the fleet (default the only one, or bans)")
	flags.IntVar(&f.Reporters, "reporters", 1, "enter a ban only when so many `nodes` have made it")
	flags.StringVar(&f.Policies, "policy-key", "", "apply policies of the fleet that this public `key` has signed (default none)")
	flags.StringVar(&f.Name, "name", "", "`name` of this node in an existing cluster")
	flags.StringSliceVar(&f.Hubs, "nats", nil, "`addresses` of an existing cluster")
	flags.StringVar(&f.Creds, "creds", "", "`file` of credentials for an existing cluster (default a new key)")
	flags.StringVar(&f.Controller, "controller", "", "public controller `key`, with --nats")
	return c
}

// joinFlags are the settings of a node.
type joinFlags struct{ node.File }

func (e *env) join(c *cobra.Command, args []string, f joinFlags) error {
	const hint = "`floodwall-hub invite NAME` on a hub prints the whole command"
	switch {
	case f.Reporters < 1 || f.Reporters > maxReporters:
		return cli.Usagef(c, "1 enters every ban", "flag --reporters: must be 1 to %d, got %d", maxReporters, f.Reporters)
	case len(args) == 0 && len(f.Hubs) == 0:
		return cli.Usagef(c, hint, "missing argument: want INVITATION")
	case len(args) > 0 && (f.Creds != "" || f.Name != "" || len(f.Hubs) > 0 || f.Controller != ""):
		return cli.Usagef(c, hint, "an invitation names the node and the hubs: leave --name, --nats, --creds and --controller out")
	}
	if len(args) > 0 {
		if _, err := fleetwire.ParseInvitation(args[0]); err != nil {
			return cli.Usagef(c, hint, "INVITATION: %v", err)
		}
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	state, err := e.OwnState()
	if err != nil {
		return err
	}
	if !c.Flags().Changed("reporters") {
		f.Reporters = 0 // keep the earlier value, or 1
	}
	if len(args) > 0 {
		var joined *node.File
		if joined, err = node.Join(c.Context(), state, args[0], f.File); err == nil {
			f.File = *joined
		}
	} else {
		err = e.joinCluster(state, f.File)
	}
	if already := (*node.JoinedError)(nil); errors.As(err, &already) {
		return wording.WithHint(err, fmt.Sprintf("`floodwall leave%s` first", e.InstanceFlags()))
	}
	if err != nil {
		return err
	}
	e.Println("this host is node %s of the fleet", f.Name)
	if f.Policies != "" {
		e.Println("it applies policies that are signed by the key with the fingerprint %s", policies.Fingerprint(f.Policies))
	}
	if !instance.LockOf(e.BPFFS).Held() {
		flags := e.InstanceFlags()
		e.Note(fmt.Sprintf("bans are not shared while `floodwall daemon%s` does not run: start it; `apply --boot%s` has systemd start it after each reboot", flags, flags))
	}
	return nil
}

// joinCluster makes this host a node of a fleet that uses an existing NATS cluster. It prints the user that the cluster needs.
func (e *env) joinCluster(state string, f node.File) error {
	user, err := node.Use(state, f)
	if err != nil {
		return err
	}
	if f.Creds == "" {
		e.Println("add this user to the configuration of the cluster:")
	} else {
		e.Println("the user of %s needs these permissions:", f.Creds)
	}
	e.Println("%s", user)
	return nil
}

// maxReporters is the maximum number of nodes that a ban can require as reporters. A record names at most 32 nodes.
const maxReporters = 16

func leaveCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "leave the fleet: share no more bans, and take none",
		Long: "Leave removes this host's key. Bans of other nodes that this host has go on until their ends; `floodwall unblock` ends one.\n" +
			"`floodwall-hub revoke` on a hub lifts the bans of this host everywhere else.",
		Example: "  floodwall leave",
		Args:    cli.None,
		RunE: func(*cobra.Command, []string) error {
			if !cli.Privileged() {
				return &cli.PrivilegeError{CommandLine: e.CommandLine}
			}
			state, err := e.OwnState()
			if err == nil {
				err = node.Leave(state)
			}
			if err != nil {
				return err
			}
			e.Println("this host has left the fleet")
			return nil
		},
	}
}

// printFleet prints the state of this host in its fleet.
func (e *env) printFleet(state string) {
	s, err := node.ReadStatus(state)
	switch {
	case err != nil:
		e.WarnOf(err)
	case s == nil:
	case !s.Connected:
		e.Println("")
		e.Println("fleet: node %s goes on by itself: %s", s.Node, s.Away())
	default:
		e.Println("")
		e.Println("fleet: node %s, hub %s: %s of other nodes, %s of this host%s", s.Node, s.Hub, wording.Things(s.Entered, "ban", "bans"), wording.Things(s.Own, "ban", "bans"), waitingText(s))
	}
	if s != nil && s.Policy != nil {
		e.Println("policy of the fleet: %s", policyText(s.Policy.Runs, string(s.Policy.Phase), cmp.Or(s.Policy.Drift, s.Policy.Problem)))
	}
}

// policyText returns the version of the fleet's policy that runs on a node, and the problem with it.
func policyText(version uint64, phase, problem string) string {
	text := "none yet"
	if version > 0 {
		text = fmt.Sprintf("version %d", version)
	}
	if problem != "" {
		text += fmt.Sprintf(" (%s: %s)", cmp.Or(phase, "waiting"), problem)
	}
	return text
}

func waitingText(s *node.Status) (text string) {
	if s.Waiting > 0 {
		text = fmt.Sprintf(", %s on the way", wording.Things(s.Waiting, "change", "changes"))
	}
	if s.Refusing != "" {
		text += ": the hub says: " + s.Refusing
	}
	if s.Crowded > 0 {
		text += fmt.Sprintf("; %s of other nodes not entered, as those have their share of the set", wording.Things(s.Crowded, "ban", "bans"))
	}
	return text
}
