// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// peersSend has the UDP ports that peers send from and listen on, although reflectors also send from them. The values are the names of the protocols.
var peersSend = map[uint16]string{137: "NetBIOS", 520: "RIP", 5353: "mDNS"}

// SenderNotes compares the packet.SenderChecks of a policy with this host and with the policy's services. The notes name wanted packets that these
// checks probably drop, and say how to let them pass.
func SenderNotes(p *policy.Policy, program *ir.Program) (notes []string) {
	if program.Checks.Has(packet.BogonSource) {
		notes = append(notes, bogonNotes(p.DeviceNames(), program.RepliesFirst)...)
	}
	if !program.Checks.Has(packet.ReflectorSource) {
		return notes
	}
	if p.Default == policy.Pass && !program.RepliesFirst {
		notes = append(notes, "the check reflector-source also drops answers that this host asks for, as of SNMP, LDAP and TFTP servers; "+
			"`replies: pass` lets them pass, beside `default: pass`, too")
	}
	for _, s := range p.Services {
		for _, port := range s.Port {
			if of, ok := peersSend[port.First]; ok && port.First == port.Last && port.Proto == packet.ProtoUDP {
				notes = append(notes, program.Place(s.Pos.Line, s.Pos.Col)+fmt.Sprintf("service %q: peers of %s send from port %d, which the check reflector-source "+
					"drops before any service; add `reflector-source: off` to `checks`", s.Name, of, port.First))
			}
		}
	}
	return notes
}

// bogonNotes returns notes that name the senders in this host's network whose packets the check bogon-source drops.
func bogonNotes(devices []string, repliesFirst bool) []string {
	unasked, asked := facts.System.Senders(devices)
	if !repliesFirst {
		unasked = append(unasked, asked...)
	}
	var names []string
	for _, p := range unasked {
		if packet.IsBogon(p.Addr()) {
			names = append(names, addrs.PrefixText(p.Masked()))
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	what := "begins there"
	if !repliesFirst {
		what = "comes from there, answers too"
	}
	return []string{fmt.Sprintf("the check bogon-source drops what %s: %s (networks, DHCP servers and resolvers of this host); it is for devices "+
		"that only the Internet is behind: `checks: {bogon-source: off}` lets it pass", what, strings.Join(slices.Compact(names), ", "))}
}
