package control

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// Explanation says what happens to a packet.
type Explanation struct {
	Packet  string `json:"packet"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"` // a rule's or check's name, default, or not-ip
	Stage   string `json:"stage"`
	Policy  string `json:"policy"`
	Line    int    `json:"line,omitempty"` // of the rule in the policy
}

// Explain says what a policy does with a packet, by its definition: no kernel is asked. Dynamic sets are
// empty, and `local` is the addresses of this host, or nothing when they cannot be listed.
func (c *Compiled) Explain(spec packet.Spec) Explanation {
	p := spec.Packet()
	verdict, reason := c.Program.Eval(&p, c.member)
	e := Explanation{
		Packet: spec.String(), Verdict: verdict.String(), Reason: c.Program.ReasonName(reason), Stage: "xdp",
		Policy: c.Policy.File,
	}
	if reason.Kind == ir.ReasonRule {
		e.Line = c.Program.Rules[reason.Index].Line
	}
	return e
}

// member reports whether a dynamic set has an address as far as that is known without asking what runs.
func (c *Compiled) member(set int, a netip.Addr) bool {
	if !c.Program.Sets[set].Dynamic.Local {
		return false
	}
	c.listOwn.Do(func() { c.own, _ = ownAddresses() })
	return slices.Contains(c.own, a)
}

// Explain asks the program that runs what it would do with a packet. Nothing is counted and no packet is sent.
func (in Instance) Explain(spec packet.Spec) (Explanation, error) {
	l, err := in.open()
	if err != nil {
		return Explanation{}, err
	}
	defer l.close()
	m := l.manifests[0]
	answer, err := l.generations[0].Ask(m.Key, spec.Frame())
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Packet: spec.String(), Verdict: ir.Verdict(answer.Verdict).String(), Reason: m.reason(answer.Slot), Stage: "xdp",
		Policy: m.File,
	}
	for _, r := range m.Rules {
		if r.Slot == answer.Slot {
			e.Line = r.Line
		}
	}
	return e, nil
}
