// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func hubView(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "view",
		Short: "show the traffic of all nodes, the attacks that they see, and who sends most",
		Long: "View shows what the nodes have reported in the last 30 seconds: the rates of each, which are under attack, and the sources that\n" +
			"send most. Attacks of one kind on one service are one line. Sources need `daemon: {sample: ...}` in the nodes' policies.",
		Example: "  floodwall-hub view\n  floodwall-hub view --json",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.atHub(func(h *hub.Client) error {
				v, err := h.View(c.Context())
				if err != nil {
					return err
				}
				return e.printView(v)
			})
		},
	}
	e.JSONFlag(c)
	return c
}

func (e *env) printView(v *wire.View) error {
	if e.JSON {
		return e.PrintJSON(v)
	}
	if v.Nodes == 0 {
		e.Println("no node has reported in the last %v", wire.Stale)
		return nil
	}
	e.Println("%s, %d under attack; passed %s packets/s, dropped %s packets/s", wording.Things(v.Nodes, "node", "nodes"), v.Attacked,
		wording.Rate(float64(v.Passed.Packets)), wording.Rate(float64(v.Dropped.Packets)))
	for _, t := range []*wording.Table{nodesTable(v), attacksTable(v), talkersTable(v)} {
		if t.Len() > 0 {
			e.Println("")
		}
		e.Table(t)
	}
	if v.Missed > 0 {
		e.Println("at nodes that do not name it, a source sent at most %s packets/s in all", wording.Rate(float64(v.Missed)))
	}
	if more := v.Nodes - len(v.Rows); more > 0 {
		e.Println("and %s", wording.Things(more, "node", "nodes"))
	}
	return nil
}

func nodesTable(v *wire.View) *wording.Table {
	t := wording.NewTable("node", ">passed/s", ">dropped/s", ">bits/s", ">reported", "under attack")
	for _, r := range v.Rows {
		attacked := "no"
		if r.Attacked {
			attacked = strings.Join(r.Attacks, ", ")
		}
		t.Row(r.Node, wording.Rate(float64(r.Passed.Packets)), wording.Rate(float64(r.Dropped.Packets)), wording.Rate(float64(r.Passed.Bits+r.Dropped.Bits)),
			fmt.Sprintf("%.0f s ago", r.Age), attacked)
	}
	return t
}

func attacksTable(v *wire.View) *wording.Table {
	t := wording.NewTable("attack", "service", ">packets/s", "since", "nodes")
	for _, a := range v.Attacks {
		nodes := strings.Join(a.Nodes, ", ")
		if more := a.Count - len(a.Nodes); more > 0 {
			nodes += fmt.Sprintf(" and %d more", more)
		}
		t.Row(a.Kind, a.Service, wording.Rate(float64(a.Packets)), a.Started.UTC().Format(time.DateTime+" UTC"), nodes)
	}
	return t
}

// talkersTable makes the table of the sources that send most. Each row has two errors: the packets that counting in bounded memory may have added,
// and the sampling error.
func talkersTable(v *wire.View) *wording.Table {
	t := wording.NewTable("source", ">packets/s", ">too many", ">sampling", "nodes", "most at")
	for _, s := range v.Talkers {
		t.Row(s.Prefix.String(), wording.Rate(float64(s.Packets)), wording.Rate(float64(s.Error)), fmt.Sprintf("±%.0f%%", min(sample.SamplingError(s.Samples), 100)),
			wording.Count(s.Nodes), fmt.Sprintf("%s (%s)", s.Node, wording.Rate(float64(s.Here))))
	}
	return t
}
