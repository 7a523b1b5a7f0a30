package experiment

import (
	"context"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// packetcostTestCase is a line of the article's table.
type packetcostTestCase struct {
	name, label string
	own         string // label with Floodwall; "": the same
	article     *rig.ArticleRow
	accept      bool // what becomes of the packets
	some        bool // some are accepted, others not
	install     func(context.Context, *rig.Site) error

	policy func() (text string, remove func(), err error) // of Floodwall, without devices; nil: it lacks something
	lacks  string                                         // why there is no policy
	cannot map[string]string                              // by target, why it has nothing for that

	least float64 // the share of the limit that Floodwall must reach on XDP; 0: none is asked for
	times float64 // how many times the rate of rivalCase it must reach there, likewise
}

func (c *packetcostTestCase) ownLabel() string { return report.Choice(c.own == "", c.label, c.own) }

// The cases that others are compared with: their costs, and what searches in packets.
const (
	baseCase  = "raw"
	rivalCase = "string/bm"
)

const (
	dropRule   = "-p udp --dport 53 -j DROP\n"
	dropPolicy = "  - {name: flood, proto: udp, port: 53, then: drop}\n"
	passPolicy = "default: pass\nchecks: off\n"
)

// packetcostTestCases are the lines of the article's table, in its order, and those of more than one string.
func packetcostTestCases() []packetcostTestCase {
	cases := append(acceptCases(), dropCases()...)
	for _, n := range []int{1, 65_000, 265_000} {
		cases = append(cases, setCase(n))
	}
	return append(append(cases, stringCases()...), hashlimitCase())
}

func acceptCases() []packetcostTestCase {
	const stateful = "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n"
	return []packetcostTestCase{
		{
			name: "accept/untracked", label: "accept, conntrack off", article: &rig.ArticleRow{Kpps: 106, Cost: ""}, accept: true,
			install: rig.Restoring("*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n" + stateful),
			policy:  text(passPolicy + "services: [{name: sink, port: udp/53, track: false}]\n"),
		},
		{
			name: "accept/tracked", label: "accept, conntrack on", article: &rig.ArticleRow{Kpps: 87, Cost: "20%"}, accept: true,
			install: rig.Restoring(stateful),
			policy:  text(passPolicy + "services: [{name: sink, port: udp/53, track: true}]\n"),
		},
	}
}

func dropCases() []packetcostTestCase {
	return []packetcostTestCase{
		{
			name: baseCase, label: "drop, first rule in raw", own: "drop, first rule", article: &rig.ArticleRow{Kpps: 280, Cost: "baseline"},
			install: rig.RestoringRaw("-A PREROUTING " + dropRule), policy: text(passPolicy + "rules:\n" + dropPolicy),
		},
		{
			name: "filter", label: "drop, first rule in filter", article: &rig.ArticleRow{Kpps: 250, Cost: "12%"},
			install: rig.Restoring("*filter\n-A INPUT " + dropRule + "COMMIT\n"), policy: text(passPolicy + "placement: filter\nrules:\n" + dropPolicy),
		},
		{
			name: "raw/rules=5", label: "drop, after 5 rules that do not match", article: &rig.ArticleRow{Kpps: 250, Cost: "12%"},
			install: rig.RestoringRaw(rig.IptablesRules("PREROUTING", 5) + "-A PREROUTING " + dropRule),
			policy:  text(passPolicy + rig.PolicyRules(5) + dropPolicy),
		},
	}
}

func hashlimitCase() packetcostTestCase {
	return packetcostTestCase{
		name: "hashlimit", label: "hashlimit, 1000/s per /16", article: &rig.ArticleRow{Kpps: 225, Cost: "20%"}, some: true,
		install: rig.RestoringRaw("-A PREROUTING -p udp -m hashlimit --hashlimit-upto 1000/sec --hashlimit-burst 1000 --hashlimit-mode srcip" +
			" --hashlimit-srcmask 16 --hashlimit-name bench -j ACCEPT\n-A PREROUTING " + dropRule),
		own:    "over 1000/s per /16",
		policy: text(passPolicy + "rules: [{name: limit, proto: udp, over: {rate: 1000/s, per: from/16}, then: drop}]\n"),
		least:  rig.LeastLimit,
	}
}
