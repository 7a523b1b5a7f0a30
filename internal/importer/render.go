package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// keys are the keys of a rule of the policy, and those of its not.
type keys struct{ is, not []string }

func (k *keys) add(not bool, name string, list []string) {
	if len(list) == 0 {
		return
	}
	value := list[0]
	if len(list) > 1 {
		value = "[" + strings.Join(list, ", ") + "]"
	}
	if not {
		k.not = append(k.not, name+": "+value)
	} else {
		k.is = append(k.is, name+": "+value)
	}
}

// renderer writes conds as keys.
type renderer struct {
	addrs func(a *addrSet) []string // the words for addresses, which may become sets
	cond  cond
	keys  keys
	proto uint32 // the one protocol, or 0
}

// render is the keys of a cond.
func render(c cond, addrs func(a *addrSet) []string) keys {
	r := renderer{addrs: addrs, cond: c}
	r.address("from", c.src)
	r.address("to", c.dst)
	r.protocol()
	r.ports("port", c.field[packet.DPort])
	r.ports("sport", c.field[packet.SPort])
	r.words("family", packet.Family, []string{packet.FamilyIPv4: "ipv4", packet.FamilyIPv6: "ipv6"})
	r.flags()
	r.messages()
	for _, f := range []packet.Field{packet.Length, packet.TTL, packet.DSCP} {
		r.keys.add(false, f.String(), spanWords(c.field[f]))
	}
	r.words("fragment", packet.Fragment, []string{"none", "first", "later"})
	r.words("state", packet.State, []string{
		packet.StateNew: "new", packet.StateEstablished: "established", packet.StateRelated: "related",
		packet.StateInvalid: "invalid", packet.StateUntracked: "untracked",
	})
	return r.keys
}

func (r *renderer) address(key string, t addrTest) {
	if t.in != nil {
		r.keys.add(false, key, r.addrs(t.in))
	}
	if t.out != nil {
		r.keys.add(true, key, r.addrs(t.out))
	}
}

// protocol writes the protocol: the one that the rule asks for or, when ports or flags need it, theirs.
func (r *renderer) protocol() {
	v := r.cond.field[packet.Proto]
	for _, d := range dependents {
		if d.field != packet.ICMP {
			v = v.and(d.needs(r.cond.field[d.field]))
		}
	}
	if v == nil || v.within(only(protoTCP, protoUDP)) && v.count() == 2 && r.cond.field[packet.Proto] == nil {
		return
	}
	if v.count() == 1 {
		r.proto = v[0].first
	}
	not := v.count() > 128
	if not {
		v = v.not(packet.Proto)
	}
	var list []string
	for _, s := range v {
		for n := s.first; n <= s.last; n++ {
			name, ok := policyProtos[n]
			if !ok {
				name = fmt.Sprint(n)
			}
			list = append(list, name)
		}
	}
	r.keys.add(not, "proto", list)
}

// ports writes ports, without their protocol where the rule has it or where they are of both.
func (r *renderer) ports(key string, v values) {
	if v == nil {
		return
	}
	not := v.has(packet.PortNone)
	if not {
		v = v.not(packet.DPort)
	}
	tcp := v.and(tcpPorts)
	udp := values{}
	for _, s := range v.and(udpPorts) {
		udp = append(udp, span{s.first - packet.PortUDP, s.last - packet.PortUDP})
	}
	switch {
	case r.proto == protoTCP || slices.Equal(tcp, udp):
		r.keys.add(not, key, spanWords(tcp))
	case r.proto == protoUDP:
		r.keys.add(not, key, spanWords(udp))
	default:
		r.keys.add(not, key, append(prefixed("tcp/", spanWords(tcp)), prefixed("udp/", spanWords(udp))...))
	}
}

func prefixed(prefix string, words []string) (out []string) {
	for _, w := range words {
		out = append(out, prefix+w)
	}
	return out
}

func spanWords(v values) (list []string) {
	for _, s := range v {
		switch {
		case s.first == s.last:
			list = append(list, fmt.Sprint(s.first))
		default:
			list = append(list, fmt.Sprintf("%d-%d", s.first, s.last))
		}
	}
	return list
}

// words writes a field whose few values have names.
func (r *renderer) words(key string, f packet.Field, names []string) {
	var list []string
	for n, name := range names {
		if v := r.cond.field[f]; v != nil && v.has(uint32(n)) {
			list = append(list, name)
		}
	}
	r.keys.add(false, key, list)
}
