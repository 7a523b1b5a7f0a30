// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon/upstream"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

func bgpStatus(e *env, dir func() string) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "show the sessions, and what is announced",
		Long: "Status shows the sessions with the routers upstream, what is announced, who wanted it and until when. It exits with 1 when\n" +
			"a session is not established.",
		Example: "  floodwall-bgp status --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return e.bgpStatus(c, dir()) },
	}
	e.JSONFlag(c)
	return c
}

func (e *env) bgpStatus(c *cobra.Command, dir string) error {
	side, err := e.side(dir)
	if err != nil {
		return err
	}
	u, none := side.Policy(c.Context())
	st, err := bgp.NewClient(dir).Status(c.Context())
	var doubts []string
	if err == nil && none == nil {
		doubts = upstream.Doubt(u, &st)
	}
	switch {
	case errors.Is(err, bgp.ErrNotRunning):
		return wording.WithHint(err, "start it: `systemctl enable --now floodwall-bgp`")
	case err != nil:
		return err
	case e.JSON:
		if err := e.PrintJSON(st); err != nil {
			return err
		}
	default:
		e.printBGP(&st)
		for _, text := range doubts {
			e.Warning(text)
			e.StderrLine("hint", upstream.OffLinkHint)
		}
	}
	if errors.Is(none, upstream.ErrNone) {
		return noUpstream(none)
	}
	if none == nil && len(st.Sessions) == 0 {
		return wording.Hinted("nobody has told `floodwall-bgp run` of the policy's routers", "start the daemon: `systemctl start floodwall`")
	}
	for _, s := range st.Sessions {
		if s.State != bgp.Established {
			return fmt.Errorf("the session with %s is %s: %s", s.Peer, s.State, s.Why)
		}
	}
	return nil
}

func (e *env) printBGP(st *bgp.Status) {
	t := wording.NewTable("router", "as", "session", "since", "families", ">announced", ">received")
	for _, s := range st.Sessions {
		since := "-"
		if !s.Since.IsZero() {
			since = utc(s.Since)
		}
		t.Row(s.Peer.String(), fmt.Sprint(s.AS), s.State, since, familiesText(s.Families), fmt.Sprint(s.Announced), fmt.Sprint(s.Received))
	}
	e.Table(t)
	if !st.Live && len(st.Sessions) > 0 {
		e.Note("a dry run: nothing is announced while the policy's `upstream` lacks `live: true`")
	}
	if st.Problem != "" {
		e.Warning(st.Problem)
	}
	if len(st.Announcements) == 0 {
		e.Println("nothing is announced")
		return
	}
	e.Println("")
	a := wording.NewTable("announcement", "owner", "until", "routers", "why")
	for _, is := range st.Announcements {
		to := addressText(is.Peers)
		if len(is.Doubtful) > 0 {
			to = strings.TrimPrefix(to+", refused by "+addressText(is.Doubtful), ", ")
		}
		switch {
		case is.Start.After(time.Now()):
			to = "waits until " + utc(is.Start)
		case to == "":
			to = "-"
		}
		a.Row(is.Key(), is.Owner, utc(is.End), to, is.Why)
	}
	e.Table(a)
}

func familiesText(list []policy.Family) string {
	var texts []string
	for _, f := range list {
		texts = append(texts, string(f))
	}
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, " ")
}
