package xdp

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// asksReplies reports whether any rule asks for replies, or the checks do.
func asksReplies(p *ir.Program) bool {
	return p.RepliesFirst || slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Reply })
}

// repliesLast has rules that ask for replies ask for them as a condition: no field of a packet tells.
func repliesLast(p *ir.Program) *ir.Program {
	if !asksReplies(p) {
		return p
	}
	out := *p
	out.Rules = slices.Clone(p.Rules)
	for i := range out.Rules {
		if r := &out.Rules[i]; r.Reply {
			r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(m ir.Match) bool { return m.Field == packet.State })
		}
	}
	return &out
}

// notesFlows reports whether the program at egress notes conversations.
func notesFlows(p *ir.Program) bool { return asksReplies(p) || len(p.Floods) > 0 }

// flowsPart is the component with the table of conversations. The loader draws its keys, which live as long as the table does.
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

// writeServices sets a bit for each port at which rules decide before replies are asked for. Reply flows from there need not be noted.
func writeServices(to []byte, p *ir.Program) { p.Decided(func(v ir.Range) { setBits(to, v) }) }

// setBits sets the bits of a range.
func setBits(to []byte, v ir.Range) {
	for bit := v.First; bit <= v.Last; bit++ {
		at := to[bit/64*8:]
		binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|bits.RotateLeft64(1, int(bit%64)))
	}
}
