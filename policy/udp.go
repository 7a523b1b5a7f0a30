package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// fastKnown are the rates of a known client, in packets a second, of protocols that carry any traffic: 230 Mbit/s of full packets.
const fastKnown = 20_000

// defaultUDP is `udp: protect`. A game or voice stream sends 20 to 130 packets a second, so 5,000 are those of many newcomers at once, and 2,000 those
// of the busiest known client. During a flood 2,000 packets a second of newcomers are a small load for any server, and 50 of a network are enough for
// one of its hosts to begin.
func defaultUDP(at Pos) *UDP {
	over := func(n, burst uint64) Over { return Over{Pos: at, Rate: n, Per: time.Second, Burst: burst} }
	by := func(v4, v6 int, o Over) Over { o.From = &PrefixLen{v4, v6}; return o }
	start, total := over(5000, 10_000), over(2000, 2000)
	return &UDP{
		Pos: at, Start: start, Stop: *half(start), Known: by(defaultV4, defaultV6, over(2000, 4000)),
		Limits: []Over{by(24, 56, over(50, 100))}, Total: &total,
	}
}

const udpForm = "protect, off or a mapping"

// udpWord reads the value of udp where it is one word.
func udpWord(text string) (bool, *flaw) {
	if text == "protect" {
		return true, nil
	}
	f := wordFlaw(udpForm, text, []string{"protect", "off"})
	if switches[text] || text == "auto" || text == "always" {
		f.hintf("write udp: protect")
	} else if _, ok := udpKinds[strings.ToLower(text)]; ok {
		f.hintf("write udp: {protect: %s}", strings.ToLower(text))
	} else if _, g := readRate(text); g == nil {
		f.hintf("write udp: {start: %s}", text)
	}
	return false, f
}

// udpKinds are the protocols by which a sender proves that its address is not forged. With generic none does.
var udpKinds = map[string]packet.Datagrams{"generic": packet.Generic, "wireguard": packet.WireGuard, "quic": packet.QUIC, "a2s": packet.A2S, "raknet": packet.RakNet}

// udpKind reads a protocol.
func udpKind(text string) (packet.Datagrams, *flaw) {
	kind, f := choice(udpKinds)(text)
	if on, isSwitch := switches[text]; f != nil && isSwitch && !on {
		f.hintf("write udp: off")
	}
	return kind, f
}

var udpKeys = []key[UDP]{
	{"protect", func(p place, to *UDP, v *node) { to.Protect = scalarOf(p, "protect", v, udpKind) }},
	{"start", func(p place, to *UDP, v *node) { to.Start = p.udpRate("start", v) }},
	{"stop", func(p place, to *UDP, v *node) { to.Stop = p.udpRate("stop", v) }},
	{"known", place.udpKnown},
	{"limit", place.udpLimits},
	{"total", place.udpTotal},
	{"observe", func(p place, to *UDP, v *node) { to.Observe = scalarOf(p, "observe", v, yesNo) }},
}

// udp reads the key udp.
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
			if (to.UDP.Protect == packet.WireGuard || to.UDP.Protect == packet.QUIC) && v.Get("known") == nil {
				to.UDP.Known.Rate, to.UDP.Known.Burst = fastKnown, 2*fastKnown
			}
			in.udpStops(to.UDP, v)
			if v.Get("total") == nil && below(&to.UDP.Stop, to.UDP.Total) { // what would end the flood
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

// udpRate reads a rate of packets for all together, or of one source.
func (p place) udpRate(key string, v *node) Over {
	before := len(p.r.errs)
	o := p.rateForAll(key, v, readRate)
	if o == nil {
		return Over{Pos: v.Pos}
	}
	p.ofPackets(key, v, o, before)
	return *o
}

// ofPackets reports a rate of bits, unless there are more errors than before.
func (p place) ofPackets(key string, v *node, o *Over, before int) {
	if len(p.r.errs) == before && o != nil && o.Bits {
		p.errorf(v.Pos, "%s is a rate of packets, not of bits", key).Hint = "write " + key + ": 1000/s"
	}
}

// leastKnown is the lowest rate of known clients, in packets a second: one in 16 is counted.
const leastKnown = 100

// udpKnown reads the limit of each known client.
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

// udpTotal reads the rate for all clients together that are not known.
func (p place) udpTotal(to *UDP, v *node) {
	before := len(p.r.errs)
	to.Total = p.totalRate("total", v)
	p.ofPackets("total", v, to.Total, before)
}

// udpLimits reads the limits of clients that are not known, by prefixes of sources.
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
	if len(to.Limits) == maxLayers { // total is one more
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

// udpStops reports a stop that is not below start, and works in half of start as stop.
func (p place) udpStops(u *UDP, v *node) {
	start, stop := v.Get("start"), v.Get("stop")
	if start != nil && stop == nil {
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

// floodable reports a service, which n is, whose UDP cannot be protected: it has none, a guard does so already, or another service protects the port.
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

// FloodKey is the key of a service by which a port of UDP is protected from floods of forged sources, as a policy has it; "" where none is of use: the
// clients are hosts of the same link, or come too seldom to be known, as those of a time server do.
func FloodKey(port uint16) string {
	switch port {
	case 53:
		return "guard: dns"
	case 443:
		return "udp: {protect: quic}"
	case 51820:
		return "udp: {protect: wireguard}"
	case 27015, 27016, 27017, 27018, 27019: // what Source servers choose
		return "udp: {protect: a2s}"
	case 19132, 19133: // Minecraft Bedrock, IPv4 and IPv6
		return "udp: {protect: raknet}"
	case 67, 68, 69, 123, 137, 138, 161, 162, 514, 546, 547, 1900, 5353:
		return ""
	}
	return "udp: protect"
}

// Unprotected lists the services at UDP ports that anybody may send to and that nothing protects from floods of forged sources, each with the key that would.
func Unprotected(pol *Policy) (list []Service, keys []string) {
	for _, s := range pol.Services {
		ports := ofUDP(s.Port)
		if len(ports) == 0 || s.From != nil || s.UDP != nil || s.Guard != nil {
			continue
		}
		if key := FloodKey(ports[0].First); key != "" {
			list, keys = append(list, s), append(keys, key)
		}
	}
	return list, keys
}
