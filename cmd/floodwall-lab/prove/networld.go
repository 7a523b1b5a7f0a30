// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// netWorld is the state that the tables and the policy use in addition to the packet. It has the names of the policy's sets and limits in the tables,
// and state that is unknown in advance. The unknown state is modelled by uninterpreted functions: both sides get the same result for equal arguments.
type netWorld struct {
	program      *ir.Program
	out          *nftables.Ruleset
	tables       []*nftable.Table
	devices      []string
	others       bool              // the packets arrive on devices that are not in the policy
	stages       []int             // the stage of each rule
	defaultStage int               // the stage of the default
	sets         map[string]setUse // uses of sets, by the sets' names in the table
	limits       map[string]int    // the index of a limit, by the name of its object or set
	crowds       map[string]int    // the index of a rule, by the name of the set that counts its connections
	spans        map[spansKey][]span
}

// setUse says which part of a policy's dynamic set a set of the table contains.
type setUse struct {
	set  int
	what string // "addresses" or "prefixes"
}

type spansKey struct {
	set  *nftable.Set
	with nftable.Verdict
	any  bool
}

func newNetWorld(p *ir.Program, x *nftables.Ruleset, devices []string, tables []*nftable.Table) *netWorld {
	w := &netWorld{
		program: p, out: x, tables: tables, devices: devices, sets: map[string]setUse{}, limits: map[string]int{}, crowds: map[string]int{},
		spans: map[spansKey][]span{},
	}
	for i, s := range x.Sets {
		if !s.Live && !s.Dynamic {
			continue
		}
		w.sets[s.V4], w.sets[s.V6] = setUse{i, "addresses"}, setUse{i, "addresses"}
		w.sets[s.Nets4], w.sets[s.Nets6] = setUse{i, "prefixes"}, setUse{i, "prefixes"}
	}
	for i, names := range x.Limits {
		w.limits[names[0]], w.limits[names[1]] = i, i
	}
	for i, names := range x.Crowds {
		w.crowds[names[0]], w.crowds[names[1]] = i, i
	}
	for _, names := range []map[string]int{w.limits, w.crowds} {
		delete(names, "")
	}
	delete(w.sets, "")
	return w
}

// in returns a formula that holds if an address is in a part of a dynamic set.
func (u setUse) in(d *decoded, address []*smt.Term) *smt.Term {
	hi, lo := d.halves(address)
	return d.Apply("in_"+u.what, 0, d.n(uint64(u.set)), hi, lo)
}

// member returns a formula that holds if an address is in a set of the policy.
func (w *netWorld) member(d *decoded, set int, address []*smt.Term) *smt.Term {
	s := &w.program.Sets[set]
	switch {
	case s.Dynamic != nil && s.Dynamic.Local:
		return w.own(d, address)
	case s.Dynamic != nil, s.Live:
		return d.Or(setUse{set, "addresses"}.in(d, address), setUse{set, "prefixes"}.in(d, address))
	}
	parts, err := w.parts(set, d.kind.v6)
	if err != nil || len(parts) < 2 {
		return d.among(address, spansOfSet(s.Static, d.kind.v6))
	}
	return d.Or(d.among(address, parts[0]), d.among(address, parts[1])) // Netfilter.sets compares both parts with the policy's set
}

// parts returns the spans of those sets of the table that together make a constant set of the policy.
func (w *netWorld) parts(set int, v6 bool) (out [][]span, err error) {
	s := w.out.Sets[set]
	names := [2]string{s.V4, s.Nets4}
	if v6 {
		names = [2]string{s.V6, s.Nets6}
	}
	for _, name := range names {
		if held := w.tables[0].Sets[name]; held != nil {
			list, err := w.spansIn(held, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, list)
		}
	}
	return out, nil
}

// own returns a formula that holds if an address is the host's own.
func (w *netWorld) own(d *decoded, address []*smt.Term) *smt.Term {
	hi, lo := d.halves(address)
	return d.Apply("own", 0, hi, lo)
}

// addressType returns the type of an address in the routing table, if the address is not the host's own.
func (w *netWorld) addressType(c *smt.Context, side string) *smt.Term {
	return c.Var("type_of_"+side, 32)
}

// forwarded returns a formula that holds if the packet is forwarded.
func (w *netWorld) forwarded(c *smt.Context) *smt.Term { return c.Var("forwarded", 0) }

// ctStatus returns the status bits of the connection.
func (w *netWorld) ctStatus(c *smt.Context) *smt.Term { return c.Var("ct_status", 32) }

// direction returns the direction of the packet in its connection: 0 is original, 1 is reply.
func (w *netWorld) direction(c *smt.Context) *smt.Term { return c.Var("ct_direction", 8) }

// connected returns a formula that holds if the packet belongs to a connection or begins one. It does not hold for an invalid or untracked packet.
func (w *netWorld) connected(d *decoded) *smt.Term {
	return d.ULE(d.field[packet.State], d.n(packet.StateRelated))
}

// translated returns a formula that holds if NAT has changed the packet's destination. In the original direction, NAT translates the connection's
// destination; in the reply direction, its source.
func (w *netWorld) translated(d *decoded) *smt.Term {
	has := func(bit uint64) *smt.Term { return d.Not(d.is(d.BitAnd(w.ctStatus(d.Context), d.n(bit)), 0)) }
	there, back := d.is(w.direction(d.Context), 0), d.is(w.direction(d.Context), 1)
	return d.And(w.connected(d), d.Or(d.And(there, has(statusTarget)), d.And(back, has(statusSource))))
}

// newByte returns a byte of the destination address or port that NAT has set.
func (w *netWorld) newByte(c *smt.Context, what string, n int) *smt.Term {
	return c.Var(fmt.Sprintf("new_%s_%d", what, n), 8)
}

// newDest returns the destination of the packet after NAT.
func (w *netWorld) newDest(d *decoded) (out []*smt.Term) {
	for i, b := range d.dest {
		out = append(out, d.Ite(w.translated(d), w.newByte(d.Context, "address", i), b))
	}
	return out
}

// deviceIndex returns the number of the device.
func (w *netWorld) deviceIndex(c *smt.Context) *smt.Term { return c.Var("device_index", 32) }

const nameBytes = unix.IFNAMSIZ

// deviceName returns the name of the device on which the packet arrived: any device of the policy. After ingress, a packet with a tag has the name of
// a VLAN device, which begins with the name of the device.
func (w *netWorld) deviceName(d *decoded, h *netHook) []*smt.Term {
	out := make([]*smt.Term, nameBytes)
	for i := range out {
		if w.others {
			out[i] = d.Var(fmt.Sprintf("device_name_%d", i), 8)
			continue
		}
		for n := len(w.devices) - 1; n >= 0; n-- {
			name, b := w.devices[n], d.Const(8, 0)
			switch vlan := d.kind.tagged && !h.ingress; {
			case i < len(name):
				b = d.Const(8, uint64(name[i]))
			case vlan && i == len(name):
				b = d.Const(8, '.')
			case vlan && i < nameBytes-1:
				b = d.Var(fmt.Sprintf("vlan_name_%d", i), 8)
			}
			if out[i] == nil {
				out[i] = b
			}
			out[i] = d.Ite(d.is(d.Var("device", 8), uint64(n)), b, out[i])
		}
	}
	return out
}

// mss returns a formula that holds if the packet has an MSS option, and the value of the option. If cmd/floodwall-lab/prove/packettcp.go reads no options
// of the packet, the proof assumes that both sides find the same option.
func (w *netWorld) mss(d *decoded) (there, size *smt.Term) {
	header := d.word(d.Concat(d.Extract(d.l4(12, 1), 4, 4), d.Const(2, 0)))
	there, _ = d.usualOptions(header)
	return there, d.Extract(d.segmentSize(header), 0, 16)
}

// asksMSS reports whether any test uses the MSS option.
func (w *netWorld) asksMSS() bool {
	for i := range w.program.Rules {
		for _, f := range w.program.Rules[i].Match {
			if f.Field == packet.MSS {
				return true
			}
		}
	}
	return w.program.Checks.Has(packet.SYNNoMSS) || w.program.Observed.Has(packet.SYNNoMSS)
}

// checks evaluates the checks of a meaning as far as nftables can perform them. Ruleset.Left names the checks that nftables performs only in part, or
// not at all. checks returns the packets about which nothing is claimed.
func (w *netWorld) checks(m *meaning) (out *smt.Term) {
	d := m.decoded
	out = d.Or(d.Not(d.usual), d.malformed, d.failed[packet.Truncated])
	if d.kind.proto == 0 {
		for _, proto := range told[flag(d.kind.v6)] {
			out = d.Or(out, d.is(d.protocol(), uint64(proto)))
		}
	}
	if d.kind.proto == protoTCP && w.asksMSS() {
		out = d.Or(out, d.failed[packet.TCPHeader], d.failed[packet.TCPOptions])
	}
	for check := range packet.NumChecks {
		switch {
		case w.out.Checks[check] == "":
			d.failed[check] = d.False()
		case check == packet.TCPHeader && d.kind.proto == protoTCP:
			d.failed[check] = d.ULT(d.Extract(d.l4(12, 1), 4, 4), d.Const(4, 5))
		case check == packet.UDPLength && d.kind.proto == protoUDP:
			d.failed[check] = d.ULT(d.l4(4, 2), d.Const(16, 8))
		}
	}
	return out
}

// told contains, for each family, the protocols with kinds of their own, and extension headers. All other protocols are "other protocols".
var told = [2][]byte{{protoICMP, protoTCP, protoUDP}, {protoTCP, protoUDP, protoICMPv6, 0, 43, 44, 51, 60}}

// assumptions returns the assumptions about the variables.
func (w *netWorld) assumptions(m *meaning) *smt.Term {
	d, c := m.decoded, m.Context
	forwarded := w.forwarded(c)
	out := c.And(
		c.ULE(d.field[packet.State], d.n(packet.StateUntracked)),
		c.ULE(w.direction(c), c.Const(8, 1)),
		c.Implies(w.translated(d), w.own(d, d.dest)),
		c.Implies(forwarded, c.And(c.Not(w.own(d, w.newDest(d))), c.ULT(d.n(1), d.field[packet.TTL]))),
		c.Not(d.is(w.deviceIndex(c), 1)),
		c.ULT(c.Var("device", 8), c.Const(8, uint64(len(w.devices)))),
	)
	for _, side := range []string{"source", "destination"} {
		out = c.And(out, c.Not(d.is(w.addressType(c, side), unix.RTN_LOCAL)))
	}
	for n, name := range w.devices {
		if d.kind.tagged && len(name) > nameBytes-3 { // no VLAN device can have a name that begins with this name
			out = c.And(out, c.Not(d.is(c.Var("device", 8), uint64(n))))
		}
	}
	unconfirmed := d.is(c.BitAnd(w.ctStatus(c), d.n(statusSeen)), 0)
	for i := range w.program.Rules {
		r := &w.program.Rules[i]
		if r.Until != 0 {
			end := c.Const(64, uint64(time.Unix(0, r.Until).Unix())*uint64(time.Second))
			out = c.And(out, c.Eq(c.Var(fmt.Sprintf("not_over.%d", i), 0), c.ULT(c.Var("now", 64), end)))
		}
		if r.Connections != nil {
			out = c.And(out, c.Implies(c.Var(fmt.Sprintf("crowded.%d", i), 0), unconfirmed))
		}
	}
	if d.kind.proto == protoTCP && w.asksMSS() {
		there, _ := w.mss(d)
		syn := d.bit(d.payload+13, flagSYN)
		header := d.word(d.Concat(d.Extract(d.l4(12, 1), 4, 4), d.Const(2, 0)))
		size := d.segmentSize(header)
		out = c.And(out, c.ULE(size, d.n(packet.MSSMissing)), c.Implies(syn, c.Eq(there, c.Not(d.is(size, packet.MSSMissing)))))
	}
	return out
}

// elsewhere returns a formula that holds if the name of the device is neither the name of a device of the policy nor that of a VLAN device on one.
func (w *netWorld) elsewhere(d *decoded) *smt.Term {
	name, out := w.deviceName(d, hookRaw), d.True()
	begins := func(text string) *smt.Term {
		in := d.True()
		for i := range min(len(text), nameBytes) {
			in = d.And(in, d.is(name[i], uint64(text[i])))
		}
		return in
	}
	for _, device := range w.devices {
		out = d.And(out, d.Not(begins(device+"\x00")))
		if len(device) <= nameBytes-3 {
			out = d.And(out, d.Not(begins(device+".")))
		}
	}
	return out
}

// payload returns a formula that holds if the packet's payload passes a rule's test.
func (w *netWorld) payload(d *decoded, p *ir.PayloadMatch) *smt.Term {
	out := d.True()
	for i := range p.At {
		out = d.And(out, d.has4(&p.At[i]))
	}
	if p.Not {
		return d.Not(out)
	}
	return out
}

// has4 returns a formula that holds if certain bytes are at an offset after the IP header. For TCP, the payload follows the TCP header if that header
// is complete.
func (d *decoded) has4(at *ir.At) *smt.Term {
	end := int(at.Offset) + len(at.Value)
	words, there := d.Const(4, 0), d.ULE(d.n(uint64(end)), d.rest)
	switch {
	case at.Base == ir.BaseL4:
	case d.kind.proto == protoTCP:
		words = d.Extract(d.l4(12, 1), 4, 4)
		size := d.word(d.Concat(words, d.Const(2, 0)))
		there = d.And(d.ULE(d.n(20), size), d.ULE(d.Add(size, d.n(uint64(end))), d.rest))
	case d.kind.proto != 0:
		there = d.ULE(d.n(uint64(8+end)), d.rest)
	}
	start := d.payload + int(at.Offset)
	if at.Base == ir.BasePayload && d.kind.proto != protoTCP && d.kind.proto != 0 {
		start += 8
	}
	for i, mask := range at.Mask {
		b := d.BitAnd(d.atWords(words, start+i), d.Const(8, uint64(mask)))
		there = d.And(there, d.is(b, uint64(at.Value[i])))
	}
	return there
}
