package prove

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/lab/prove/nftable"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// netWorld is what the tables and the policy are asked about beside the packet: the names that the policy's sets and limits have in the tables, and what
// nobody knows before it happens. That is uninterpreted: both sides are asked the same, with equal arguments.
type netWorld struct {
	program      *ir.Program
	out          *nftables.Ruleset
	tables       []*nftable.Table
	devices      []string
	others       bool              // the packets come in by other devices
	stages       []int             // of each rule, by their order
	defaultStage int               // of the default, likewise
	sets         map[string]setUse // by their names in the table
	limits       map[string]int    // of objects and sets, the limit's index
	crowds       map[string]int    // of sets that count connections, the rule's index
	spans        map[spansKey][]span
}

// setUse is what a set of the table has of a set of the policy that changes while the table decides.
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

// in is whether an address is in a part of a set that changes.
func (u setUse) in(d *decoded, address []*smt.Term) *smt.Term {
	hi, lo := d.halves(address)
	return d.Apply("in_"+u.what, 0, d.n(uint64(u.set)), hi, lo)
}

// member is whether an address is in a set of the policy.
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
	return d.Or(d.among(address, parts[0]), d.among(address, parts[1])) // Netfilter.sets compares both with the policy's
}

// parts are the spans of the table's sets that together are one of the policy that never changes.
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

// own is whether an address is the host's own.
func (w *netWorld) own(d *decoded, address []*smt.Term) *smt.Term {
	hi, lo := d.halves(address)
	return d.Apply("own", 0, hi, lo)
}

// addressType is what the routing table says of an address that is not the host's own.
func (w *netWorld) addressType(c *smt.Context, side string) *smt.Term {
	return c.Var("type_of_"+side, 32)
}

// forwarded is whether the packet is on its way through.
func (w *netWorld) forwarded(c *smt.Context) *smt.Term { return c.Var("forwarded", 0) }

// ctStatus are the bits of the connection.
func (w *netWorld) ctStatus(c *smt.Context) *smt.Term { return c.Var("ct_status", 32) }

// direction is that of the packet in its connection: 0 is the original one, 1 that of replies.
func (w *netWorld) direction(c *smt.Context) *smt.Term { return c.Var("ct_direction", 8) }

// connected is whether the packet is of a connection, or begins one: an invalid or untracked one is not.
func (w *netWorld) connected(d *decoded) *smt.Term {
	return d.ULE(d.field[packet.State], d.n(packet.StateRelated))
}

// translated is whether NAT has given the packet another destination: on the way there of a connection whose destination it translates, on the way back
// of one whose source.
func (w *netWorld) translated(d *decoded) *smt.Term {
	has := func(bit uint64) *smt.Term { return d.Not(d.is(d.BitAnd(w.ctStatus(d.Context), d.n(bit)), 0)) }
	there, back := d.is(w.direction(d.Context), 0), d.is(w.direction(d.Context), 1)
	return d.And(w.connected(d), d.Or(d.And(there, has(statusTarget)), d.And(back, has(statusSource))))
}

// newByte is a byte of the destination, or of its port, that NAT has given the packet.
func (w *netWorld) newByte(c *smt.Context, what string, n int) *smt.Term {
	return c.Var(fmt.Sprintf("new_%s_%d", what, n), 8)
}

// newDest is the destination that the packet has behind NAT.
func (w *netWorld) newDest(d *decoded) (out []*smt.Term) {
	for i, b := range d.dest {
		out = append(out, d.Ite(w.translated(d), w.newByte(d.Context, "address", i), b))
	}
	return out
}

// deviceIndex is the number of the device.
func (w *netWorld) deviceIndex(c *smt.Context) *smt.Term { return c.Var("device_index", 32) }

const nameBytes = unix.IFNAMSIZ

// deviceName is the name of the device by which the packet came in: any of the policy's. What has come in with a tag has, behind ingress, the name of a VLAN device
// that is called like it.
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

// mss is whether an MSS option is there, and its size. That both sides find the same option is assumed where internal/lab/prove/packettcp.go reads none.
func (w *netWorld) mss(d *decoded) (there, size *smt.Term) {
	header := d.word(d.Concat(d.Extract(d.l4(12, 1), 4, 4), d.Const(2, 0)))
	there, _ = d.usualOptions(header)
	return there, d.Extract(d.segmentSize(header), 0, 16)
}

// asksMSS reports whether anything asks for that option.
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

// checks has the checks of a meaning fail as nftables can see it: Ruleset.Left says of which it sees nothing, or not all. It returns of which packets
// nothing is claimed.
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

// told are the protocols, by family, that are no other ones: those with kinds of their own, and headers that others follow.
var told = [2][]byte{{protoICMP, protoTCP, protoUDP}, {protoTCP, protoUDP, protoICMPv6, 0, 43, 44, 51, 60}}

// assumptions are what holds of the variables.
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
		if d.kind.tagged && len(name) > nameBytes-3 { // no VLAN device can be called like it
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

// elsewhere is that the name of the device, where it is another one, is none that a device of the policy has, or a VLAN device that is called like it.
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

// payload is whether the packet has what a rule asks of its payload.
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

// has4 is whether bytes are at a place behind the IP header. The payload of TCP is behind the header, if that is whole.
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
