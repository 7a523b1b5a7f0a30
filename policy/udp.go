// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// Default rates, in packets per second, for WireGuard and QUIC. Connections of these protocols can have any packet rate. In a flood of forged
// packets, their servers process only the first packet of a handshake. quic-go and x/net/quic served 20 of 20 new clients during a flood of 30,000
// forged Initials per second, and a WireGuard server requires a cookie under load (whitepaper, 5.4.7).
const (
	handshakeKnown = 20_000 // 230 Mbit/s of full packets
	handshakeStart = 15_000
	handshakeTotal = 7_500
)

// defaultUDP returns the parameters of `udp: protect`. A game or voice stream sends 20 to 130 packets per second. 5,000 packets per second from
// unknown clients therefore mean that many new clients come at once. 2,000 packets per second are more than the busiest known client sends. During a
// flood, 2,000 packets per second from new clients are a small load for any server. 50 packets per second from one network are enough for one of its
// hosts to start a session.
func defaultUDP(at Pos) *UDP {
	over := func(n, burst uint64) Over { return Over{Pos: at, Rate: n, Per: time.Second, Burst: burst} }
	by := func(v4, v6 int, o Over) Over { o.From = &PrefixLen{v4, v6}; return o }
	start, total := over(5000, 10_000), over(2000, 2000)
	return &UDP{
		Pos: at, Start: start, Stop: *half(start), Known: by(defaultV4, defaultV6, over(2000, 4000)),
		Limits: []Over{by(24, 56, over(50, 100))}, Total: &total,
	}
}

// ofHandshakes sets the default rates of WireGuard and QUIC for the keys that v does not have.
func (u *UDP) ofHandshakes(v *node) {
	if v.Get("known") == nil {
		u.Known.Rate, u.Known.Burst = handshakeKnown, 2*handshakeKnown
	}
	if v.Get("start") == nil {
		u.Start.Rate, u.Start.Burst = handshakeStart, handshakeStart
	}
	if v.Get("total") == nil {
		u.Total.Rate, u.Total.Burst = handshakeTotal, handshakeTotal
	}
}

const udpForm = "protect, off or a mapping"

// udpWord parses the value of udp if the value is one word.
func udpWord(text string) (bool, *flaw) {
	if text == "protect" {
		return true, nil
	}
	f := wordFlaw(udpForm, text, []string{"protect", "off"})
	if switches[text] || text == "auto" || text == "always" {
		f.hintf("write udp: protect")
	} else if _, g := udpKinds.parse(strings.ToLower(text)); g == nil {
		f.hintf("write udp: {protect: %s}", strings.ToLower(text))
	} else if _, g := readRate(text); g == nil {
		f.hintf("write udp: {start: %s}", text)
	}
	return false, f
}

// udpKinds are the protocols of protected services. In all except generic, a sender can prove that its address is not forged.
var udpKinds = words[packet.Datagrams]{
	{"generic", packet.Generic}, {"wireguard", packet.WireGuard}, {"quic", packet.QUIC}, {"a2s", packet.A2S}, {"raknet", packet.RakNet},
}

var udpSchema = define("udp", anyOf(enum("protect"), offSchema, object(udpKeys)).titled("`protect`, `off`, or `{protect, start, …}`"))

var rateOfDatagrams = form[Over]{synRateSchema, place.udpRate}

// udpKind parses the name of a protocol.
func udpKind(text string) (packet.Datagrams, *flaw) {
	kind, f := udpKinds.parse(text)
	if on, isSwitch := switches[text]; f != nil && isSwitch && !on {
		f.hintf("write udp: off")
	}
	return kind, f
}

var udpKeys = []key[UDP]{
	{name: "protect", value: into(word(udpKinds.schema(), udpKind), func(to *UDP) *packet.Datagrams { return &to.Protect }),
		doc: "The protocol of the service. `generic`: any; only known clients pass first. During a flood, `wireguard` and `quic` also pass " +
			"clients that send an index or connection ID which the service has issued; with `a2s`, XDP answers queries of server lists " +
			"(Source games), first with a challenge, then with the service's latest answer; with `raknet` (Minecraft Bedrock), XDP " +
			"answers a client's first request with a cookie, and a client that sends it back is known at once.", usual: `"generic"`, examples: `"quic"`},
	{name: "start", value: into(rateOfDatagrams, func(to *UDP) *Over { return &to.Start }),
		doc: "The rate of packets of unknown clients above which a flood starts. Nothing is dropped below it, so give it what the service " +
			"can bear. When left out: 15000/s with `wireguard` and `quic`, else 5000/s.", examples: `"20000/s"`},
	{name: "stop", value: into(rateOfDatagrams, func(to *UDP) *Over { return &to.Stop }),
		doc: "The rate of packets of unknown clients below which a flood ends. When left out: half of `start`.", examples: `"2000/s"`},
	{name: "known", value: custom(place.udpKnown, rateOfDatagrams.schema),
		doc: "The rate, at least 100/s, of all known clients of one address (IPv6: /64), and of all packets together that pass by an " +
			"identifier. A client above it is no longer known during a flood. When left out: 2000/s with `generic`, `a2s` and `raknet`, " +
			"else 20000/s.", examples: `"10000/s"`},
	{name: "limit", value: custom(place.udpLimits, limitsOrOff.schema),
		doc: "The rate of unknown clients by source prefix during a flood. Packets above it are dropped. When left out: 50/s per " +
			"from/24/56.", examples: `"off"`},
	{name: "total", value: custom(place.udpTotal, totalRate.schema),
		doc: "The rate of all unknown clients during a flood. Packets above it are dropped. Half of the burst is for clients that send " +
			"again what was refused. When left out: 7500/s with `wireguard` and `quic`, else 2000/s, or `stop` if that is less.", examples: `"500/s"`},
	{name: "observe", value: into(yesOrNo, func(to *UDP) *bool { return &to.Observe }),
		doc: "Count what would be dropped, and drop nothing.", usual: `false`, examples: `true`},
}

// udp parses the key udp.
func (p place) udp(to *Service, v *node) {
	to.UDP = defaultUDP(v.Pos)
	switch {
	case isOff(v):
		to.UDP = nil
	case v.Kind == yamltree.Word:
		scalarOf(p, "udp", v, udpWord)
	case v.Kind == yamltree.List:
		p.errorf(v.Pos, "udp must be %s, got a list", udpForm).Hint = "write udp: protect"
	default:
		in, before := p.in("udp"), len(p.r.errs)
		readKeys(in, "it", v, udpKeys, to.UDP)
		if len(p.r.errs) == before && v.Whole() {
			if to.UDP.Protect == packet.WireGuard || to.UDP.Protect == packet.QUIC {
				to.UDP.ofHandshakes(v)
			}
			in.udpStops(to.UDP, v)
			if v.Get("total") == nil && below(&to.UDP.Stop, to.UDP.Total) { // the default total would end the flood
				total := to.UDP.Stop
				total.Burst = total.usualBurst().n
				to.UDP.Total = &total
			}
			if to.UDP.Limits == nil && to.UDP.Total == nil {
				in.errorf(v.Get("limit").Pos, "limit and total are off: nothing would be dropped").Hint = "leave one of them, or write udp: off"
			}
		}
	}
}

// udpRate parses a rate of packets, for all sources together or for one source.
func (p place) udpRate(key string, v *node) Over {
	before := len(p.r.errs)
	o := p.rateForAll(key, v, readRate)
	if o == nil {
		return Over{Pos: v.Pos}
	}
	p.ofPackets(key, v, o, before)
	return *o
}

// ofPackets reports a mistake if the limit o is a rate of bits. It reports nothing if the value has caused another error already: then there are more
// errors than before.
func (p place) ofPackets(key string, v *node, o *Over, before int) {
	if len(p.r.errs) == before && o != nil && o.Bits {
		p.errorf(v.Pos, "%s is a rate of packets, not of bits", key).Hint = "write " + key + ": 1000/s"
	}
}

// leastKnown is the lowest rate of known clients, in packets per second. One packet in 16 is counted, so a lower rate would be inaccurate.
const leastKnown = 100

// udpKnown parses the limit of each known client.
func (p place) udpKnown(to *UDP, v *node) {
	before := len(p.r.errs)
	if per := v.Get("per"); per != nil {
		p.errorf(per.Pos, "known is by source already").Hint = "remove per"
		return
	}
	if most := v.Get("max"); most != nil {
		p.errorf(most.Pos, "known has no max: it is held for as many sources as limits have places").Hint = "remove max"
		return
	}
	to.Known = p.udpRate("known", v)
	to.Known.From = &PrefixLen{defaultV4, defaultV6}
	if perSecond := to.Known.Rate * uint64(time.Second) / uint64(max(to.Known.Per, 1)); len(p.r.errs) == before && v.Whole() && perSecond < leastKnown {
		p.errorf(v.Pos, "known is below %d/s: one packet in 16 is counted, so less would cut clients off by chance", leastKnown).Hint =
			fmt.Sprintf("write known: %d/s, or more", leastKnown)
	}
}

// udpTotal parses the limit for all unknown clients together.
func (p place) udpTotal(to *UDP, v *node) {
	before := len(p.r.errs)
	to.Total = p.totalRate("total", v)
	p.ofPackets("total", v, to.Total, before)
}

// udpLimits parses the limits of unknown clients by source prefixes.
func (p place) udpLimits(to *UDP, v *node) {
	to.Limits = nil
	if isOff(v) {
		return
	}
	before := len(p.r.errs)
	if v.Kind == yamltree.Word {
		text := "50/s"
		if _, f := readRate(v.Text); f == nil {
			text = v.Text
		}
		p.errorf(v.Pos, "limit must be off or a mapping, got %s", v).Hint = fmt.Sprintf("write {rate: %s, per: from/24/56}", text)
		return
	}
	to.Limits = p.overs("limit", v)
	if len(p.r.errs) > before || !v.Whole() {
		return
	}
	if len(to.Limits) == maxLayers { // the total limit counts as one more
		p.errorf(to.Limits[maxLayers-1].Pos, "limit has %d limits, and at most %d can be asked beside total", len(to.Limits), maxLayers-1).Hint =
			"leave out those that others imply"
	}
	for _, o := range to.Limits {
		switch {
		case o.From == nil:
			p.errorf(o.Pos, "limit is by sources").Hint = "write per: from/24/56, or total for one rate for all"
		case o.Bits:
			p.errorf(o.Pos, "limit is a rate of packets, not of bits").Hint = "write {rate: 50/s, per: from/24/56}"
		case o.Ban != nil:
			p.errorf(o.Pos, "limit cannot ban: anybody can forge the source of a UDP packet").Hint = "remove ban"
		}
	}
}

// udpStops sets stop to half of start if the policy does not set stop. It reports a stop rate that is not below start.
func (p place) udpStops(u *UDP, v *node) {
	start, stop := v.Get("start"), v.Get("stop")
	if stop == nil {
		u.Stop = *half(u.Start)
	}
	switch {
	case u.Stop.Rate == 0:
		p.errorf(start.Pos, "start is one packet in a time, %s, and stop must be below it", rateText(&u.Start)).Hint =
			"write it for a longer time, as in 60/min"
	case stop != nil && !below(&u.Stop, &u.Start):
		p.errorf(stop.Pos, "stop must be below start, %s", rateText(&u.Start)).Hint =
			"a flood begins above start, and ends when there is less than stop: write " + rateText(half(u.Start))
	}
}

// floodable reports why the service n cannot have flood protection for UDP: it has no UDP port, it has a guard, or another service protects one of
// its ports.
func (p place) floodable(earlier []Service, s Service, n *node) {
	if s.Port == nil {
		return
	}
	if v := n.Get("udp"); s.UDP != nil && len(ofUDP(s.Port)) == 0 {
		p.errorf(v.Pos, "udp needs a port of UDP").Hint = fmt.Sprintf("write port: udp/%d", s.Port[0].First)
	} else if s.UDP != nil && s.Guard != nil {
		p.errorf(v.Pos, "udp and guard both limit floods of UDP").Hint = "use one; the guard is for DNS"
	}
	if s.UDP != nil && s.Track == Track {
		p.errorf(n.Get("track").Pos, "track: true has netfilter decide about the service, and udp needs XDP").Hint = "remove track: true"
	}
	for _, e := range earlier {
		key := "udp"
		if s.UDP == nil {
			key = "guard"
		}
		port, shared := sharedPort(ofUDP(s.Port), ofUDP(e.Port))
		if shared && (s.UDP != nil && (e.UDP != nil || e.Guard != nil) || s.Guard != nil && e.UDP != nil) {
			p.errorf(n.Get(key).Pos, "%s is the second protection of port %s, which has one in line %d", key, port, e.Pos.Line).Hint =
				"protect the port in one service"
			return
		}
	}
}

// FloodKey returns the key, in the policy's notation, that protects a service on this UDP port from floods with forged sources. It returns "" if no
// key is useful. That is the case if the clients are on the same link, or if they send too rarely to become known clients, as clients of time servers
// do.
func FloodKey(port uint16) string {
	switch port {
	case 53:
		return "guard: dns"
	case 443:
		return "udp: {protect: quic}"
	case 51820:
		return "udp: {protect: wireguard}"
	case 27015, 27016, 27017, 27018, 27019: // default ports of Source servers
		return "udp: {protect: a2s}"
	case 19132, 19133: // Minecraft Bedrock, IPv4 and IPv6
		return "udp: {protect: raknet}"
	case 67, 68, 69, 123, 137, 138, 161, 162, 514, 546, 547, 1900, 5353:
		return ""
	}
	return "udp: protect"
}

// Unprotected returns the services with UDP ports that are open to all sources, that have no protection from floods with forged sources, and for
// which FloodKey returns a key. ports has the first such port of each service.
func Unprotected(pol *Policy) (list []Service, ports []uint16) {
	for _, s := range pol.Services {
		udp := ofUDP(s.Port)
		if len(udp) == 0 || s.From != nil || s.UDP != nil || s.Guard != nil {
			continue
		}
		if first := udp[0].First; FloodKey(first) != "" {
			list, ports = append(list, s), append(ports, first)
		}
	}
	return list, ports
}
