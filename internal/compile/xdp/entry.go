// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/xdp/entry"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Held returns the expressions that hold for a class.
func (a *addresses) Held(class int) (list []int) {
	for at, word := range a.truth[class] {
		for ; word != 0; word &= word - 1 {
			list = append(list, 64*at+bits.TrailingZeros64(word))
		}
	}
	return list
}

// entryPart generates the entry of a program. It returns the component with the maps that only the entry reads.
func entryPart(p *ir.Program, a *addresses, l *limits, decisions []uint32, o Options, out *Program) component {
	in := entry.Input{
		Program:    p,
		Decisions:  decisions,
		Dynamic:    out.Dynamic,
		Classes:    a,
		Handshakes: o.Protect,
		Table6:     !a.table.V6.Empty(),
		Questions:  o.QuestionKey != 0,
		Key:        o.QuestionKey,
		Limits:     l.infos,
		Sampling:   entry.Sampling{Share: trafficShare(p), Adapts: p.SamplesAdapt, Salt: uint32(o.QuestionKey >> 32)},
	}
	if buckets, err := flowBuckets(p.Protections); err == nil { // if there is an error, protectPart() returns it
		in.FlowMask = buckets - 1
	}
	if t := a.table.V4; !t.Empty() {
		in.Filter4 = a.filter4(t)
	}
	at := func(h image.Hook) *entry.Entry {
		in := in
		in.Hook = h
		if len(l.infos) > 0 {
			in.Constants = image.ConstantOffsets(h, "limit_keys", "limit_mix")
		}
		return entry.Generate(in)
	}
	e := at(image.XDP)
	out.Entry = e.Insns
	out.EntryAt = func(h image.Hook) asm.Instructions { return at(h).Insns }
	part := component{shapes: map[string]image.Shape{}}
	if (p.Checks | p.Observed).Has(packet.ReflectorSource) {
		shape := image.Shape{ValueSize: entry.ReflectorBytes, Entries: 1}
		part.shapes[image.Reflectors] = shape
		part.then(func(memory map[string][]byte) error {
			entry.FillReflectors(into(memory, image.Reflectors, shape))
			return nil
		})
	}
	if bytes := e.MapBytes(); bytes > 0 {
		shape := image.Shape{ValueSize: uint32(bytes), Entries: 1}
		part.shapes[image.Listed] = shape
		part.then(func(memory map[string][]byte) error {
			e.Fill(into(memory, image.Listed, shape))
			return nil
		})
	}
	return part
}

// filter4 returns the filters with which the entry finds out that an IPv4 source has no class.
func (a *addresses) filter4(t *addrs.Table4) *entry.Filter4 {
	f := &entry.Filter4{Shift: t.Shift, Mask: filter4Mask(t), All: t.FilterHosts, Hosts: t.FirstHosts(), Follow: a.follow4(t)}
	for _, bytes := range t.FirstBytes() {
		f.FirstBytes = append(f.FirstBytes, ir.Range{First: uint32(bytes[0]), Last: uint32(bytes[1])})
	}
	return f
}
