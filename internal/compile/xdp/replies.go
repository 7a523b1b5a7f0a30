// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// asksReplies reports whether any rule or the checks test whether a packet is a reply.
func asksReplies(p *ir.Program) bool {
	return p.RepliesFirst || slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Reply || r.Spares })
}

// repliesLast returns a program in which tests for replies are conditions of their rules, because no field of a packet identifies a reply.
func repliesLast(p *ir.Program) *ir.Program {
	if !asksReplies(p) {
		return p
	}
	out := *p
	out.Rules = slices.Clone(p.Rules)
	for i := range out.Rules {
		if r := &out.Rules[i]; r.Reply || r.Spares {
			r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(m ir.Match) bool { return m.Field == packet.State })
		}
	}
	return &out
}

// notesFlows reports whether the program for outgoing packets records reply flows.
func notesFlows(p *ir.Program) bool { return asksReplies(p) || len(p.Floods) > 0 }

// flowsPart returns the component with the table of reply flows. The loader chooses the keys of the table. It keeps them as long as it keeps the
// table.
func flowsPart(p *ir.Program) component {
	if !notesFlows(p) {
		return component{}
	}
	services := image.Shape{ValueSize: 8 * image.ServiceWords, Entries: 1}
	return component{
		constants: map[string]any{"notes_flows": true, "notes_replies": asksReplies(p), "replies_first": p.RepliesFirst, "notes_clients": len(p.Floods) > 0},
		shapes: map[string]image.Shape{
			image.ReplyFlows:  {ValueSize: image.ReplyBuckets * image.ReplyBucketSize, Entries: 1},
			image.ReplyFilter: {ValueSize: image.ReplyFilterSize, Entries: 1},
			image.Services:    services,
		},
		fill: func(memory map[string][]byte) error {
			writeServices(into(memory, image.Services, services), p)
			return nil
		},
	}
}

// writeServices sets the bit of each port whose packets are decided before the rule for replies. Reply flows from these ports need not be recorded.
func writeServices(to []byte, p *ir.Program) { p.Decided(func(v ir.Range) { setBits(to, v) }) }

// setBits sets the bits of a range of numbers.
func setBits(to []byte, v ir.Range) {
	for bit := v.First; bit <= v.Last; bit++ {
		at := to[bit/64*8:]
		binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|bits.RotateLeft64(1, int(bit%64)))
	}
}
