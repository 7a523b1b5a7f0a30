// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/policy"
)

// The least share of all packets that a value must have to count as a property of the attack.
const (
	targetShare = 0.5 // a destination
	valueShare  = 0.8 // a protocol, a port, a length, a source
)

// The shortest source prefixes that count as senders of an attack.
const (
	leastFrom4 = 16
	leastFrom6 = 32
)

// FlowOf returns the flow of an attack, by samples of all packets. The flow has the own address that gets most packets, and the values that nearly
// all packets have. why is the reason when no such flow spares the clients of the address. Destination ports alone do not suffice, because they are
// the address's services.
func FlowOf(u *policy.Upstream, s *operate.Samples) (f wire.Flow, target netip.Prefix, why string) {
	if s == nil {
		return f, target, "there are no samples"
	}
	for _, t := range s.Destinations {
		p, err := netip.ParsePrefix(t.Key)
		if err == nil && p.IsSingleIP() && u.Own(p) && t.Share >= targetShare {
			target = p
			break
		}
	}
	if !target.IsValid() {
		return f, target, "no own address gets most packets"
	}
	f.To = target
	var special bool
	if value, ok := common(s, "proto"); ok {
		if p, err := policy.ParseProtocol(value); err == nil {
			f.Proto = []uint8{p}
		}
	}
	if r, ok := portOf(s, "port"); ok {
		f.Port = []wire.Range{r}
	}
	if r, ok := portOf(s, "sport"); ok {
		f.SPort, special = []wire.Range{r}, true
	}
	if value, ok := common(s, "length"); ok {
		if n, err := strconv.ParseUint(value, 10, 16); err == nil {
			f.Length, special = []wire.Range{{First: uint16(n), Last: uint16(n)}}, true
		}
	}
	if p, ok := source(s, target); ok {
		f.From, special = p, true
	}
	if !special || len(f.Proto) == 0 || f.Check() != nil {
		return f, target, "its packets have nothing in common that those of clients lack"
	}
	return f, target, ""
}

// common returns the value of a field that nearly all packets have.
func common(s *operate.Samples, field string) (string, bool) {
	if list := s.Fields[field]; len(list) > 0 && list[0].Share >= valueShare {
		return list[0].Key, true
	}
	return "", false
}

// portOf returns the port that nearly all packets have. The policy's notation is udp/53.
func portOf(s *operate.Samples, field string) (wire.Range, bool) {
	value, ok := common(s, field)
	_, number, _ := strings.Cut(value, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	return wire.Range{First: uint16(n), Last: uint16(n)}, ok && err == nil
}

// source returns the prefix from which nearly all packets come.
func source(s *operate.Samples, target netip.Prefix) (found netip.Prefix, ok bool) {
	least := leastFrom4
	if target.Addr().Is6() {
		least = leastFrom6
	}
	for _, t := range s.Sources {
		p, err := netip.ParsePrefix(t.Key)
		if err == nil && p.Addr().Is4() == target.Addr().Is4() && p.Bits() >= least && t.Share >= valueShare && (!ok || p.Bits() > found.Bits()) {
			found, ok = p.Masked(), true
		}
	}
	return found, ok
}
