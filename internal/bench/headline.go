package bench

import (
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// Comparison is Floodwall beside the tool that people use for the same, and beside what is at most possible. Figures of what
// was not measured are 0.
type Comparison struct {
	What  string // is done
	Unit  string
	Tool  string // that people use
	Bound string // what is at most possible
	Own   float64
	Rival float64
	Limit float64
}

// headline is a comparison by the names of results and the unit of the figure that counts.
type headline struct {
	what, unit        string
	own, rival, limit string // names of results
	tool, bound       string
	rivalUnit         string // "": the same
}

// headlines are what a reader wants to know first.
var headlines = []headline{
	{
		what: "drop, the first rule", unit: "Mpps", own: "drop/floodwall/rules=0", rival: "drop/iptables/raw",
		limit: "drop/empty", tool: "iptables raw", bound: emptyProgram,
	},
	{
		what: "drop, after 500 rules", unit: "Mpps", own: "drop/floodwall/rules=500", rival: "drop/nft/ingress/rules=500",
		limit: "drop/empty", tool: "nft ingress", bound: emptyProgram,
	},
	{
		what: "drop by a list of 1,000,000 addresses", unit: "Mpps", own: "sets/n=1000000/floodwall/listed",
		rival: "sets/n=1000000/ipset/listed", limit: "sets/empty", tool: "ipset", bound: emptyProgram,
	},
	{
		what: "drop by a list of 100,000 addresses", unit: "Mpps", own: "sets/n=100000/floodwall/listed",
		rival: "sets/n=100000/ipset/listed", limit: "sets/empty", tool: "ipset", bound: emptyProgram,
	},
	{
		what: "limit to 1000/s per /16", unit: "Mpps", own: "limit/floodwall/xdp/random", rival: "limit/iptables/random",
		limit: "limit/empty", tool: "iptables hashlimit", bound: emptyProgram,
	},
	{
		what: "look for a text in packets", unit: "Mpps", own: "payload/floodwall/xdp/string/n=1",
		rival: "payload/iptables/string/bm/n=1", limit: "payload/empty", tool: "iptables string", bound: emptyProgram,
	},
	{
		what: "answer a SYN flood", unit: "Mpps", own: "synproxy/syn/floodwall/host", rival: "synproxy/syn/synproxy/host",
		limit: "synproxy/syn/xdp-tx", tool: "kernel SYNPROXY", bound: "empty XDP_TX",
	},
	{
		what: "drop an ACK flood", unit: "Mpps", own: "synproxy/ack/floodwall/host", rival: "synproxy/ack/synproxy/host",
		limit: "synproxy/ack/xdp-drop", tool: "kernel SYNPROXY", bound: emptyProgram,
	},
	{
		what: "serve the web where stateful rules fill their table", unit: "req/s", own: "conntrack/floodwall/auto",
		rival: "conntrack/nft/full", rivalUnit: "full-req/s", limit: "conntrack/no-firewall",
		tool: "nft, stateful", bound: "no firewall",
	},
	{
		what: "answer DNS clients beside a flood of 2 Mpps", unit: "answered/s", own: "dns/random/floodwall",
		rival: "dns/random/unbound", limit: "dns/quiet/nothing", tool: "unbound's own limits", bound: "no flood",
	},
}

// emptyProgram is the limit of what drops on one core.
const emptyProgram = "empty XDP_DROP"

// Headlines are the comparisons for which Floodwall was measured, in a fixed order.
func (r *Report) Headlines() (all []Comparison) {
	for _, h := range headlines {
		c := Comparison{What: h.what, Unit: h.unit, Tool: h.tool, Bound: h.bound}
		c.Own = r.figure(h.own, h.unit)
		c.Rival = r.figure(h.rival, choice(h.rivalUnit == "", h.unit, h.rivalUnit))
		c.Limit = r.figure(h.limit, h.unit)
		if c.Own > 0 {
			all = append(all, c)
		}
	}
	return all
}

// figure is what the named result gives in a unit; 0 when it does not.
func (r *Report) figure(name, unit string) float64 {
	for _, e := range r.Experiments {
		for _, res := range e.Results {
			if i := slices.IndexFunc(res.Metrics, func(m lab.Metric) bool { return m.Unit == unit }); i >= 0 && res.Name == name {
				return res.Metrics[i].Value
			}
		}
	}
	return 0
}
