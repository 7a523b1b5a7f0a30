package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/fleet/hub"
	"github.com/floodwall/floodwall/internal/fleet/sight"
	"github.com/floodwall/floodwall/internal/talkers"
)

func hubView(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "view",
		Short: "show the traffic of all nodes, the attacks that they see, and who sends most",
		Long: "View shows what the nodes have reported in the last 30 seconds: the rates of each, which are under attack, and the sources that\n" +
			"send most. Attacks of one kind on one service are one line. Sources need `daemon: {sample: ...}` in the nodes' policies.",
		Example: "  floodwall hub view\n  floodwall hub view --json",
		Args:    none,
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
	e.jsonFlag(c)
	return c
}

func (e *env) printView(v *sight.View) error {
	if e.json {
		return e.printJSON(v)
	}
	if v.Nodes == 0 {
		e.println("no node has reported in the last %v", sight.Stale)
		return nil
	}
	e.println("%s, %d under attack; passed %s packets/s, dropped %s packets/s", things(v.Nodes, "node", "nodes"), v.Attacked,
		rateText(float64(v.Passed.Packets)), rateText(float64(v.Dropped.Packets)))
	for _, t := range []*table{nodesTable(v), attacksTable(v), talkersTable(v)} {
		if len(t.rows) > 0 {
			e.println("")
		}
		e.table(t)
	}
	if v.Missed > 0 {
		e.println("at nodes that do not name it, a source sent at most %s packets/s in all", rateText(float64(v.Missed)))
	}
	if more := v.Nodes - len(v.Rows); more > 0 {
		e.println("and %s", things(more, "node", "nodes"))
	}
	return nil
}

func nodesTable(v *sight.View) *table {
	t := newTable("node", ">passed/s", ">dropped/s", ">bits/s", ">reported", "under attack")
	for _, r := range v.Rows {
		attacked := "no"
		if r.Attacked {
			attacked = strings.Join(r.Attacks, ", ")
		}
		t.row(r.Node, rateText(float64(r.Passed.Packets)), rateText(float64(r.Dropped.Packets)), rateText(float64(r.Passed.Bits+r.Dropped.Bits)),
			fmt.Sprintf("%.0f s ago", r.Age), attacked)
	}
	return t
}

func attacksTable(v *sight.View) *table {
	t := newTable("attack", "service", ">packets/s", "since", "nodes")
	for _, a := range v.Attacks {
		nodes := strings.Join(a.Nodes, ", ")
		if more := a.Count - len(a.Nodes); more > 0 {
			nodes += fmt.Sprintf(" and %d more", more)
		}
		t.row(a.Kind, a.Service, rateText(float64(a.Packets)), a.Started.UTC().Format(time.DateTime+" UTC"), nodes)
	}
	return t
}

// talkersTable has two errors for each source: packets that counting in bounded memory may have added, and that of sampling.
func talkersTable(v *sight.View) *table {
	t := newTable("source", ">packets/s", ">too many", ">sampling", "nodes", "most at")
	for _, s := range v.Talkers {
		t.row(s.Prefix.String(), rateText(float64(s.Packets)), rateText(float64(s.Error)), fmt.Sprintf("±%.0f%%", min(talkers.SamplingError(s.Samples), 100)),
			count(s.Nodes), fmt.Sprintf("%s (%s)", s.Node, rateText(float64(s.Here))))
	}
	return t
}
