// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// unfit returns why the daemon must not add a rule automatically, or "" when it may. Honest newcomers could send packets that the rule matches, and
// no baseline contains future clients. So a rule must not match the first packets of conversations.
func (w *Watcher) unfit(s *suggest.Signature) string {
	switch {
	case s.Vague():
		return "honest newcomers can have all that it asks for"
	case s.MatchesSYN():
		return "it matches SYNs, and those of clients can be like those of a flood: `syn: protect` tells them apart"
	}
	if a, ok := w.named(s); ok {
		return fmt.Sprintf("it asks for sources of which %s was here before", a)
	}
	if why := w.shutsOut(s); why != "" {
		return why
	}
	return w.beginsSo(s)
}

// named returns a sender of the baseline whose address lies in the sources of the rule.
func (w *Watcher) named(s *suggest.Signature) (netip.Addr, bool) {
	for a := range w.traffic.known {
		if s.From(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// shutsOut returns why a rule may drop the packets of newcomers to a service, or "". The usual reason is that too few first packets to the service
// are known. Rules for a few source ports are excepted: clients choose their ports at random, so such a rule matches hardly any of them.
func (w *Watcher) shutsOut(s *suggest.Signature) string {
	if s.FromFewPorts() {
		return ""
	}
	for _, p := range append(w.traffic.ports(), echoPort) {
		switch {
		case p == echoPort:
			if !s.MatchesEcho() {
				continue
			}
		case !s.ReachesPort(uint32(p)):
			continue
		case p < packet.PortUDP:
			return fmt.Sprintf("it can match segments of new connections to %s: `syn: protect` tells them from others", p)
		}
		if n := w.openingsOf(p); n < leastOpenings {
			return fmt.Sprintf("it can match what newcomers send to %s, and only %d of %d first packets of conversations there were seen", p, n, leastOpenings)
		}
	}
	return ""
}

// openingsOf returns the number of senders whose first packets to a service are known.
func (w *Watcher) openingsOf(p port) int {
	from := map[netip.Addr]bool{}
	for i := range w.firsts {
		if s := &w.firsts[i]; here(s, false) == p {
			from[s.Sender()] = true
		}
	}
	return len(from)
}

// opensBy returns a reason if the rule matches the first packet of every client of a protocol, because of the packet's format. Otherwise it returns
// "".
func opensBy(s *suggest.Signature, attack []suggest.Sample) string {
	for i := range attack {
		if p := &attack[i]; p.Value[packet.Proto] == packet.ProtoUDP && s.Has(p) {
			if name := openingVector(p.Payload); name != "" {
				return fmt.Sprintf("every client begins with what it matches (%s)", name)
			}
		}
	}
	return ""
}

// mostAlike is the largest share of first packets that a rule may match when all of these packets are from one sender, because an attacker may have
// sent them to prevent rules.
const mostAlike = 0.02

// bound returns, as text, an upper limit of the share of newcomers that a rule may match, with 95% confidence. It follows from the number of first
// packets on which the rule was tested.
func (w *Watcher) bound(s *suggest.Signature) string {
	if s.FromFewPorts() {
		return "clients draw their ports"
	}
	var list []string
	for _, p := range w.traffic.ports() {
		if s.ReachesPort(uint32(p)) {
			n := w.openingsOf(p)
			list = append(list, fmt.Sprintf("of newcomers at %s at most %.1f%% by %d first packets", w.traffic.services[p].name, 100*suggest.ShareOf(0, n).High, n))
		}
	}
	return strings.Join(list, ", ")
}

// beginsSo returns a reason if the rule matches first packets of past conversations. Otherwise it returns "".
func (w *Watcher) beginsSo(s *suggest.Signature) string {
	from, matched := map[netip.Addr]bool{}, 0
	for i := range w.firsts {
		if s.Has(&w.firsts[i]) {
			from[w.firsts[i].Sender()] = true
			matched++
		}
	}
	if len(from) < 2 && float64(matched) <= mostAlike*float64(len(w.firsts)) {
		return ""
	}
	return fmt.Sprintf("it matches the first packets of conversations with %d of those who came in quiet times", len(from))
}
