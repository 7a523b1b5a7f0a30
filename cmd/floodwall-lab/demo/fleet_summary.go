// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
)

// FleetSummary has the results of a demonstration of a fleet.
type FleetSummary struct {
	Machine  lab.Machine         `json:"machine"`
	Policy   string              `json:"policy"` // policy of web-1; the policies of the others have no upstream
	Router   string              `json:"router_policy"`
	Phases   []FleetPhase        `json:"phases"`
	Times    Times               `json:"times"`
	AfterBan [nodes]FleetPackets `json:"after_ban"` // packets of the attack after the bans were in force at all nodes
}

// Times has times in seconds.
type Times struct {
	FirstBan   float64 `json:"first_ban"`  // from the beginning of the attack to the first ban at its node
	Everywhere float64 `json:"everywhere"` // the longest time from a ban at that node to the same ban at the last node
	Lifted     float64 `json:"lifted"`     // from the command until no node had a ban
	Upstream   float64 `json:"upstream"`   // from the time when the link was full until the router dropped packets
	Withdrawn  float64 `json:"withdrawn"`  // from the command until the router had no rule
}

// FleetTrouble is a fault of Floodwall in a demonstration.
type FleetTrouble struct{ Problem, Remedy string }

func (t *FleetTrouble) Error() string { return t.Problem }

// Hint returns the remedy.
func (t *FleetTrouble) Hint() string { return t.Remedy }

// fleetReport is the remedy for defects of Floodwall.
const fleetReport = "this is a defect of Floodwall: please report it, with what `floodwall-lab demo --fleet --json` prints"

// last returns the phase after the attack.
func (s *FleetSummary) last() *FleetPhase { return &s.Phases[len(s.Phases)-1] }

// Trouble returns a fault of Floodwall, or nil if there was none. A slow machine is no fault: see Remarks.
func (s *FleetSummary) Trouble() *FleetTrouble {
	for i, p := range s.AfterBan {
		if p.Reached > 0 {
			return &FleetTrouble{fmt.Sprintf("%d of %d packets of banned senders reached %s", p.Reached, p.Sent, s.Phases[0].Nodes[i].Name), fleetReport}
		}
	}
	for _, p := range s.Phases {
		for _, n := range p.Nodes {
			if n.Others > 0 {
				return &FleetTrouble{fmt.Sprintf("%s dropped %d packets of clients (%s)", n.Name, n.Others, p.Name), fleetReport}
			}
		}
	}
	for _, n := range s.last().Nodes {
		if lost := n.Banned + n.Limited + n.Router; lost > 0 {
			return &FleetTrouble{fmt.Sprintf("%d of %d packets to %s were dropped after all was lifted", lost, n.Sent, n.Name), fleetReport}
		}
	}
	return s.lineTrouble()
}

// The indexes of the phases of the flood that fills the link.
const (
	lineFull    = 2
	routerDrops = 3
)

// lineTrouble returns a fault of Floodwall during the flood that fills the link, or nil.
func (s *FleetSummary) lineTrouble() *FleetTrouble {
	for _, p := range s.Phases[lineFull : routerDrops+1] {
		if n := p.Nodes[0]; n.Reached > 0 {
			return &FleetTrouble{fmt.Sprintf("%d reflected packets passed %s (%s)", n.Reached, n.Name, p.Name), fleetReport}
		}
	}
	if n := s.Phases[routerDrops].Nodes[0]; n.Mirror+n.Line > onTheWay {
		return &FleetTrouble{fmt.Sprintf("%d of %d packets passed the router, which was to drop them", n.Mirror+n.Line, n.Sent), fleetReport}
	}
	return nil
}

// Remarks describes effects of this machine, not of Floodwall, on the results. It returns "" if the machine was fast enough.
func (s *FleetSummary) Remarks() string {
	var said []string
	if s.Times.Everywhere > 1 {
		said = append(said, fmt.Sprintf("A ban took %.1f s to all nodes, more than the second that a quiet machine needs at most: all nodes and the hub share this one.", s.Times.Everywhere))
	}
	for i, p := range s.AfterBan {
		if p.Sent == 0 {
			said = append(said, fmt.Sprintf("This machine was too busy to send to %s after the bans.", s.Phases[0].Nodes[i].Name))
		}
	}
	if s.Phases[lineFull].Nodes[0].Line == 0 {
		said = append(said, "This machine was too busy to send as much as the line carries.")
	}
	for i, p := range s.Phases {
		ok, failed := p.requests()
		if failed > 0 && i != lineFull {
			said = append(said, fmt.Sprintf("Of %d requests %d failed (%s), though no packet of theirs was dropped: this machine is busy with other things.", ok+failed, failed, p.Name))
		}
	}
	return strings.Join(said, "\n")
}

func (p *FleetPhase) requests() (ok, failed uint64) {
	for _, n := range p.Nodes {
		ok, failed = ok+n.Requests.OK, failed+n.Requests.Failed
	}
	return ok, failed
}

// Text returns the summary as text for people.
func (s *FleetSummary) Text() string {
	var out strings.Builder
	line := func(label string, cell func(p *FleetPhase) string) {
		fmt.Fprintf(&out, "%-32s", label)
		for i := range s.Phases {
			fmt.Fprintf(&out, "%13s", cell(&s.Phases[i]))
		}
		out.WriteString("\n")
	}
	each := func(label string, cell func(n *Node) string) {
		for i := range nodes {
			line(fmt.Sprintf(label, s.Phases[0].Nodes[i].Name), func(p *FleetPhase) string { return cell(&p.Nodes[i]) })
		}
	}
	packets := func(of func(n *Node) uint64) func(n *Node) string {
		return func(n *Node) string { return fmt.Sprint(of(n)) }
	}
	line("", func(p *FleetPhase) string { return p.Name })
	each("%s: requests answered", func(n *Node) string {
		return fmt.Sprintf("%d of %d", n.Requests.OK, n.Requests.OK+n.Requests.Failed)
	})
	each("%s: half of them within", func(n *Node) string { return lab.Millis(n.Requests.P50) })
	each("%s: packets of the senders", packets(func(n *Node) uint64 { return n.Sent }))
	each("%s: dropped above the limit", packets(func(n *Node) uint64 { return n.Limited }))
	each("%s: dropped as banned", packets(func(n *Node) uint64 { return n.Banned }))
	each("%s: lost in full queues", packets(func(n *Node) uint64 { return n.Lost() }))
	each("%s: reached the host", packets(func(n *Node) uint64 { return n.Reached }))
	line("web-1: dropped as reflected", func(p *FleetPhase) string { return fmt.Sprint(p.Nodes[0].Mirror) })
	line("line to web-1: had no space for", func(p *FleetPhase) string { return fmt.Sprint(p.Nodes[0].Line) })
	line("router: dropped by FlowSpec", func(p *FleetPhase) string { return fmt.Sprint(p.Nodes[0].Router) })
	out.WriteString("\n" + s.verdict())
	if remarks := s.Remarks(); remarks != "" {
		out.WriteString(remarks + "\n")
	}
	return out.String()
}

// verdict returns the result in sentences.
func (s *FleetSummary) verdict() string {
	var sent uint64
	for _, p := range s.AfterBan {
		sent += p.Sent
	}
	text := fmt.Sprintf("web-1 banned the first sender %.2f s after the attack began. Each ban was in force at all nodes within %.2f s.\n",
		s.Times.FirstBan, s.Times.Everywhere)
	if s.Trouble() == nil {
		text += fmt.Sprintf("From then on the senders sent %d packets to all nodes, and none reached a host.\n", sent)
	}
	return text + fmt.Sprintf("`floodwall-hub unban` lifted the bans at all nodes within %.2f s.\n"+
		"The router dropped the flood %.2f s after the line was full, and obeyed the announcement no more %.2f s after it was withdrawn.\n",
		s.Times.Lifted, s.Times.Upstream, s.Times.Withdrawn)
}

// FleetNext returns the commands to try after a demonstration. The parameter name is the name by which the user calls floodwall-hub.
func FleetNext(name string) string {
	return fmt.Sprintf("\nNext (docs/guides/fleet.md):\n  %[1]s init --address ADDRESS   # on the host of the hub, then: %[1]s run\n"+
		"  %[1]s invite web-1             # prints the command that joins a node\n"+
		"  %[1]s view                     # all nodes, their attacks and senders\n", name)
}
