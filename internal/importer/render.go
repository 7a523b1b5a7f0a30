// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// keys contains the keys of a policy rule: the keys of the rule itself, and the keys under `not`.
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

// renderer formats conditions as keys.
type renderer struct {
	addrs func(a *saved.AddrSet) []string // formats addresses, which may become sets
	cond  saved.Cond
	keys  keys
	proto uint32 // the only protocol of the rule, or 0
}

// render returns the keys of a condition.
func render(c saved.Cond, addrs func(a *saved.AddrSet) []string) keys {
	r := renderer{addrs: addrs, cond: c}
	r.address("from", c.Src)
	r.address("to", c.Dst)
	r.protocol()
	r.ports("port", c.Field[packet.DPort])
	r.ports("sport", c.Field[packet.SPort])
	r.words("family", packet.Family, []string{packet.FamilyIPv4: "ipv4", packet.FamilyIPv6: "ipv6"})
	r.flags()
	r.messages()
	for _, f := range []packet.Field{packet.Length, packet.TTL, packet.DSCP} {
		r.keys.add(false, f.String(), spanWords(c.Field[f]))
	}
	r.segments()
	r.payload()
	r.words("fragment", packet.Fragment, []string{"none", "first", "later"})
	r.words("state", packet.State, []string{
		packet.StateNew: "new", packet.StateEstablished: "established", packet.StateRelated: "related",
		packet.StateInvalid: "invalid", packet.StateUntracked: "untracked",
	})
	return r.keys
}

// payload writes tests of bytes and searches for texts.
func (r *renderer) payload() {
	is, not, _ := r.cond.Payloads()
	if is != nil {
		r.keys.add(false, "payload", []string{is.String()})
	}
	if not != nil {
		r.keys.add(true, "payload", []string{not.String()})
	}
}

func (r *renderer) address(key string, t saved.AddrTest) {
	if t.In != nil {
		r.keys.add(false, key, r.addrs(t.In))
	}
	if t.Out != nil {
		r.keys.add(true, key, r.addrs(t.Out))
	}
}

// protocol writes the protocol. If the rule does not test one, but has ports or flags that need one, it writes
// theirs.
func (r *renderer) protocol() {
	v := r.cond.Field[packet.Proto]
	for _, d := range saved.Dependents {
		if d.Field != packet.ICMP {
			v = v.And(d.Needs(r.cond.Field[d.Field]))
		}
	}
	if r.cond.AsksMSS() {
		v = v.And(saved.Only(saved.ProtoTCP))
	}
	if v == nil || v.Within(saved.Only(saved.ProtoTCP, saved.ProtoUDP)) && v.Count() == 2 && r.cond.Field[packet.Proto] == nil {
		return
	}
	if v.Count() == 1 {
		r.proto = v[0].First
	}
	not := v.Count() > 128
	if not {
		v = v.Not(packet.Proto)
	}
	var list []string
	for _, s := range v {
		for n := s.First; n <= s.Last; n++ {
			list = append(list, policy.ProtocolName(uint8(n)))
		}
	}
	r.keys.add(not, "proto", list)
}

// ports writes ports. It omits the protocol of the ports if the rule already names it, or if the ports are the same for both protocols.
func (r *renderer) ports(key string, v saved.Values) {
	if v == nil {
		return
	}
	not := v.Has(packet.PortNone)
	if not {
		v = v.Not(packet.DPort)
	}
	switch r.proto {
	case saved.ProtoTCP:
		v = v.And(saved.TCPPorts)
	case saved.ProtoUDP:
		v = v.And(saved.UDPPorts)
	}
	var list []string
	var m policy.Match
	m.Ask(packet.DPort, v)
	for _, p := range m.Port {
		if uint32(p.Proto) == r.proto {
			p.Proto = 0
		}
		list = append(list, p.String())
	}
	r.keys.add(not, key, list)
}

func spanWords(v saved.Values) (list []string) {
	for _, s := range v {
		list = append(list, policy.Range(s).String())
	}
	return list
}

// segments writes the MSS of segments with SYN.
func (r *renderer) segments() {
	v := r.cond.Field[packet.MSS]
	if v == nil {
		return
	}
	not := v.Has(packet.MSSNone)
	if not {
		v = v.Not(packet.MSS)
	}
	words := spanWords(v.And(saved.Values{{First: 0, Last: saved.MaxMSS}}))
	if v.Has(packet.MSSMissing) {
		words = append(words, "none")
	}
	r.keys.add(not, "mss", words)
}

// words writes a field whose few values have names.
func (r *renderer) words(key string, f packet.Field, names []string) {
	var list []string
	for n, name := range names {
		if v := r.cond.Field[f]; v != nil && v.Has(uint32(n)) {
			list = append(list, name)
		}
	}
	r.keys.add(false, key, list)
}
