// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func feedsCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "feeds",
		Short: "list fetched lists and databases: age, size, and entries that were left out",
		Long: "Feeds shows the sets with url, country or asn of the policy that runs: how old they are, when they are fetched next,\n" +
			"and what was removed of them and why.",
		Example: "  floodwall feeds --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return feeds(c.Context(), e) },
	}
	e.JSONFlag(c)
	refresh := &cobra.Command{
		Use:   "refresh [SET...]",
		Short: "fetch lists now, and exchange their sets",
		Long: "Refresh fetches the lists of these sets, or of all, and exchanges the sets in the policy that runs.\n" +
			"It needs no daemon. A server that asked to be left alone is not asked.",
		Example: "  floodwall feeds refresh drop",
		Args:    func(*cobra.Command, []string) error { return nil },
		RunE:    func(c *cobra.Command, args []string) error { return refreshFeeds(c.Context(), e, args) },
	}
	e.JSONFlag(refresh)
	accept := &cobra.Command{
		Use:   "accept SET",
		Short: "take the list that is held because it shrank or grew too much",
		Long: "Accept takes a list that is held because it shrank or grew too much, and exchanges the set.\n" +
			"`floodwall feeds` shows which lists are held.",
		Example: "  floodwall feeds accept drop",
		Args:    cli.Exactly(1, "SET, the name of a set with url"),
		RunE:    func(c *cobra.Command, args []string) error { return acceptFeed(c.Context(), e, args[0]) },
	}
	e.JSONFlag(accept)
	c.AddCommand(refresh, accept)
	return c
}

func feeds(ctx context.Context, e *env) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	all, err := h.Feeds(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if _, err := h.RunningPolicy(ctx); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(all)
	}
	if len(all) == 0 {
		e.Println("no set of the policy that runs has url, country or asn")
		return nil
	}
	t := wording.NewTable("set", "state", ">entries", "age", "next", "from")
	for _, s := range all {
		age, next := "-", "-"
		if s.Checked != nil {
			age = wording.Span(max(time.Since(*s.Checked), 0))
		}
		if s.Next != nil {
			next = wording.Span(max(time.Until(*s.Next), 0))
		}
		t.Row(s.Set, string(s.State), wording.Count(s.Entries), age, next, s.From)
	}
	e.Table(t)
	for i := range all {
		s := &all[i]
		if s.Why != "" {
			e.Println("%s: %s", s.Set, s.Why)
		}
		if s.State == feed.StateHeld {
			e.Println("%s: `floodwall feeds accept %s` takes the list of %s", s.Set, s.Set, wording.Things(s.Held, "entry", "entries"))
		}
		if text := s.Reasons(); text != "" {
			e.Println("%s: removed %s", s.Set, text)
		}
	}
	return nil
}

func refreshFeeds(ctx context.Context, e *env, sets []string) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	done, err := h.RefreshFeeds(ctx, sets...)
	if done == nil {
		return err
	}
	return firstError(e.refreshed(done), err)
}

func acceptFeed(ctx context.Context, e *env, set string) error {
	h, err := e.Host()
	if err != nil {
		return err
	}
	done, err := h.AcceptFeed(ctx, set)
	if err != nil {
		return err
	}
	return e.refreshed(done)
}

// refreshed prints the result of fetching lists.
func (e *env) refreshed(done *operate.Refreshed) error {
	if e.JSON {
		return e.PrintJSON(done)
	}
	for _, set := range slices.Sorted(maps.Keys(done.Outcomes)) {
		e.Println("%s: %s%s", set, done.Outcomes[set], exchangedText(done.Exchanged, set))
	}
	for _, x := range done.Exchanged {
		if done.Outcomes[x.Set] == "" {
			e.Println("%s%s", x.Set, exchangedText(done.Exchanged, x.Set))
		}
	}
	if done.Later {
		e.Println("a policy is on trial: its sets are exchanged when the trial has ended")
	}
	return nil
}

func exchangedText(all []lists.Exchanged, set string) string {
	for _, x := range all {
		if x.Set == set {
			return fmt.Sprintf(": %s in force, %s before", wording.Things(x.Entries, "entry", "entries"), wording.Count(x.Before))
		}
	}
	return ""
}
