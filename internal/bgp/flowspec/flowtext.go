// SPDX-License-Identifier: Apache-2.0

// This file parses the flags of `floodwall-bgp announce` that select the packets of an announcement.

package flowspec

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Fields contains the values of the flags that select the packets of an announcement. An empty field selects every packet.
type Fields struct {
	From     string   // prefix of the sources
	Flags    string   // TCP flags, as set/mask: syn/syn,ack
	Rate     string   // the rate that passes, in bits a second with the unit: 10mbit/s
	Proto    []string // names or numbers
	Port     []string // of the destination: numbers or ranges such as 1000-2000
	SPort    []string // of the source, in the same way
	ICMP     []string // types, as numbers
	Length   []string // of the IP packet in bytes, as numbers or ranges
	Fragment bool     // only fragments
}

// Flow parses the fields, and the address or prefix of the destination. Its errors are of the type wording.Error.
func (f *Fields) Flow(destination string) (flow bgp.Flow, err error) {
	if flow.To, err = Prefix(destination); err != nil {
		return flow, wording.Errorf("write an address or a prefix, as 192.0.2.7", "DESTINATION: %v", err)
	}
	if f.From != "" {
		if flow.From, err = Prefix(f.From); err != nil {
			return flow, wording.Errorf("write a prefix, as 198.51.100.0/24", "flag --from: %v", err)
		}
	}
	for _, text := range f.Proto {
		p, err := policy.ParseProtocol(text)
		if err != nil {
			return flow, wording.Errorf("write a name, as tcp or udp, or a number from 0 to 255", "flag --proto: %q is no protocol", text)
		}
		flow.Proto = append(flow.Proto, p)
	}
	lists := []struct {
		name  string
		texts []string
		to    *[]bgp.Range
		most  uint16
	}{{"port", f.Port, &flow.Port, 65535}, {"sport", f.SPort, &flow.SPort, 65535}, {"icmp", f.ICMP, &flow.ICMP, 255}, {"length", f.Length, &flow.Length, 65535}}
	for _, l := range lists {
		for _, text := range l.texts {
			r, err := portRange(text, l.most)
			if err != nil {
				return flow, wording.Errorf("write a number or a range, as 1000-2000", "flag --%s: %v", l.name, err)
			}
			*l.to = append(*l.to, r)
		}
	}
	if f.Flags != "" {
		flags, err := policy.ParseFlags(f.Flags)
		if err != nil {
			return flow, wording.Errorf("write the flags that are set, and those to look at, as syn/syn,ack", "flag --flags: it %v", err)
		}
		flow.Set, flow.Unset = flags.Value, flags.Mask&^flags.Value
	}
	flow.Fragment = f.Fragment
	if flow.Rate, err = bytesRate(f.Rate); err != nil {
		return flow, wording.Errorf("write a number with its unit, as 10mbit/s", "flag --rate: %v", err)
	}
	if (len(flow.Port) > 0 || len(flow.SPort) > 0) && !slices.ContainsFunc(flow.Proto, func(p uint8) bool { return p == 6 || p == 17 || p == 132 }) {
		return flow, wording.Errorf("say which: --proto udp", "ports need a protocol that has ports")
	}
	if err := flow.Check(); err != nil {
		return flow, wording.Errorf("", "%v", err)
	}
	return flow, nil
}

// Prefix parses an address, or a prefix without host bits.
func Prefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, fmt.Errorf("%q is no address and no prefix", text)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s has bits of a host set: %s is the prefix", text, p.Masked())
	}
	return p, nil
}

func portRange(text string, most uint16) (bgp.Range, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err := strconv.ParseUint(low, 10, 16)
	last, failed := strconv.ParseUint(high, 10, 16)
	if err != nil || failed != nil || first > last || last > uint64(most) {
		return bgp.Range{}, fmt.Errorf("%q is no number or range up to %d", text, most)
	}
	return bgp.Range{First: uint16(first), Last: uint16(last)}, nil
}

// bytesRate parses a rate in bits a second, and returns bytes a second.
func bytesRate(text string) (float32, error) {
	if text == "" {
		return 0, nil
	}
	digits, unit := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))], strings.TrimLeft(text, "0123456789")
	times, ok := map[string]float64{"bit/s": 1, "kbit/s": 1e3, "mbit/s": 1e6, "gbit/s": 1e9}[unit]
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no rate", text)
	}
	return float32(float64(n) * times / 8), nil
}
