// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/fleet/policies"
	fleetwire "github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// fleetFlags are the flags of fleet push and fleet rollback.
type fleetFlags struct {
	hub    *hubFlags
	key    string
	canary []string
	all    bool
	trial  time.Duration
	pause  time.Duration
	note   string
	to     uint64
	newKey bool
}

func fleetCommand(e *env, hub *hubFlags) *cobra.Command {
	f := &fleetFlags{hub: hub}
	c := &cobra.Command{
		Use:   "fleet COMMAND",
		Short: "release a signed policy to the nodes of a fleet, canaries first",
		Long: "Fleet releases policies to the nodes of a fleet. A key that no hub has signs them, and each node verifies that. The canaries take a\n" +
			"policy first. Each node applies it on trial, and keeps it only when it reaches a hub afterwards.",
		Example: "  floodwall-hub fleet key policy.key\n  floodwall-hub fleet push policies --key policy.key --canary web-1\n  floodwall-hub fleet status",
	}
	cli.Group(c)
	c.AddCommand(fleetKey(e), fleetPush(e, f), fleetRollback(e, f), fleetStatus(e, f))
	return c
}

func fleetKey(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "make the key that signs the policies of a fleet",
		Long: "Key writes a new private key to FILE, and prints the public key, which nodes are given. Whoever has FILE decides what all nodes\n" +
			"drop: keep it away from hubs and nodes. Beside it, FILE.version keeps the last version that was signed.",
		Example: "  floodwall-hub fleet key policy.key",
		Args:    cli.Exactly(1, "FILE, which must not be there"),
		RunE: func(_ *cobra.Command, args []string) error {
			public, err := policies.NewKey(args[0])
			if err != nil {
				return err
			}
			e.Println("made %s; the public key is %s", args[0], public)
			e.Println("its fingerprint is %s", policies.Fingerprint(public))
			return nil
		},
	}
}

// releaseFlags adds the flags of commands that release a version.
func (f *fleetFlags) releaseFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.key, "key", "", "`file` of the private key")
	flags.StringSliceVar(&f.canary, "canary", nil, "`nodes` that take it first")
	flags.BoolVar(&f.all, "all", false, "release it to all nodes at once, without canaries")
	flags.DurationVar(&f.trial, "confirm", time.Minute, "`time` in which each node must reach a hub after it has applied the policy")
	flags.DurationVar(&f.pause, "pause", 5*time.Minute, "`time` for which the canaries are watched before the other nodes take it")
	flags.StringVar(&f.note, "note", "", "what it is for, as `text`")
}

func fleetPush(e *env, f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "push DIRECTORY",
		Short: "sign a policy and its lists, and release them to the nodes",
		Long: "Push signs the files of a directory, policy.yaml and the lists that it names, as a new version. The canaries take it first. When one\n" +
			"of them fails, or is not well during the pause, no other node gets it. Push waits until all nodes have taken it or refused.",
		Example: "  floodwall-hub fleet push policies --key policy.key --canary web-1,web-2 --pause 10m",
		Args:    cli.Exactly(1, "DIRECTORY, with policy.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			readable := func() error { _, _, err := policies.ReadDir(args[0]); return err }
			return e.release(c, f, readable, func(ctx context.Context, h policies.Hubs, p policies.Plan) (uint64, error) {
				return policies.Push(ctx, h, args[0], p)
			})
		},
	}
	f.releaseFlags(c)
	c.Flags().BoolVar(&f.newKey, "new-key", false, "the fleet has a new key: take the place of policies that another one has signed")
	return c
}

func fleetRollback(e *env, f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "rollback",
		Short: "release the files of an earlier version again",
		Long: "Rollback signs the files of the version before as a new version: versions only grow. --to names another version. The stages are\n" +
			"those of push; with --all every node takes it at once.",
		Example: "  floodwall-hub fleet rollback --key policy.key --all\n  floodwall-hub fleet rollback --key policy.key --to 3 --canary web-1",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.release(c, f, func() error { return nil }, func(ctx context.Context, h policies.Hubs, p policies.Plan) (uint64, error) {
				return policies.Rollback(ctx, h, f.to, p)
			})
		},
	}
	f.releaseFlags(c)
	c.Flags().Uint64Var(&f.to, "to", 0, "`version` whose files come back (default the last one that had others)")
	return c
}

// release checks the flags and the files on this host. Then it calls do, which releases a version, and waits for the nodes.
func (e *env) release(c *cobra.Command, f *fleetFlags, readable func() error, do func(context.Context, policies.Hubs, policies.Plan) (uint64, error)) error {
	switch {
	case f.key == "":
		return cli.Usagef(c, "`floodwall-hub fleet key FILE` makes one", "missing flag: --key")
	case (len(f.canary) == 0) == !f.all:
		return cli.Usagef(c, "--canary web-1 has the node web-1 take it first; --all releases it to all nodes at once", "want one of --canary and --all")
	case f.trial < policies.ShortestTrial || f.trial > policies.LongestTrial || f.trial%time.Second != 0:
		return cli.Usagef(c, "1m is usual", "flag --confirm: must be whole seconds from %v to %v, got %v", policies.ShortestTrial, policies.LongestTrial, f.trial)
	case f.pause < 0 || f.pause > 24*time.Hour:
		return cli.Usagef(c, "5m is usual", "flag --pause: must be at most 24h, got %v", f.pause)
	}
	for _, name := range f.canary {
		if err := fleetwire.CheckName(name); err != nil {
			return cli.Usagef(c, "`floodwall-hub nodes` lists the nodes", "flag --canary: %v", err)
		}
	}
	key, least, took, err := policies.ReadKey(f.key)
	if err != nil {
		return err
	}
	if err := readable(); err != nil {
		return err
	}
	return f.hub.atHub(func(h *hub.Client) error {
		plan := policies.Plan{
			Key: key, Canary: f.canary, Trial: f.trial, Pause: f.pause, Note: f.note, Least: least, NewKey: f.newKey, Took: took,
			Tell: func(text string) { e.Println("%s", text) },
		}
		version, err := do(c.Context(), h, plan)
		if err != nil {
			return err
		}
		without, err := policies.Await(c.Context(), h, version, f.trial)
		if err != nil {
			return err
		}
		if len(without) > 0 {
			return wording.Hinted(fmt.Sprintf("version %d does not run on %s", version, strings.Join(without, ", ")), "`floodwall-hub fleet status` says why")
		}
		e.Println("version %d runs on all nodes that report", version)
		return nil
	})
}

func fleetStatus(e *env, f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "show which policy each node has",
		Long: "Status shows the version that runs on each node, the first digits of the SHA-256 of its files, and what is not as it was released:\n" +
			"a version that failed, and a policy that somebody has applied by hand.",
		Example: "  floodwall-hub fleet status\n  floodwall-hub fleet status --json",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.hub.atHub(func(h *hub.Client) error {
				states, err := h.States(c.Context())
				if err != nil {
					return err
				}
				if e.JSON {
					return e.PrintJSON(states)
				}
				t := wording.NewTable("node", ">version", "policy", "state", "reported", "problem")
				for _, name := range slices.Sorted(maps.Keys(states)) {
					s := states[name]
					version, content := "-", "-"
					if s.Runs > 0 {
						version = fmt.Sprint(s.Runs)
					}
					if s.Content != "" {
						content = s.Content[:12]
					}
					state := string(s.Phase)
					if s.Version != s.Runs && state != "" {
						state = fmt.Sprintf("%d %s", s.Version, state)
					}
					t.Row(name, version, content, cmp.Or(state, "-"), fmt.Sprintf("%.0f s ago", s.Age), cmp.Or(s.Drift, s.Problem, "-"))
				}
				e.Table(t)
				if len(states) == 0 {
					e.Println("no node has reported its policy; `floodwall fleet trust` gives a node the key")
				}
				return nil
			})
		},
	}
	e.JSONFlag(c)
	return c
}
