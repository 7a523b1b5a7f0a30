// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// floodPart returns the component with the limits that detect floods at UDP services, and with the state of each flood.
func floodPart(p *ir.Program) (component, error) {
	if len(p.Floods) == 0 {
		return component{}, nil
	}
	if n := len(p.Floods); n > image.MaxFloods {
		return component{}, fmt.Errorf("%d UDP services are protected, at most %d can be", n, image.MaxFloods)
	}
	ports := image.Shape{ValueSize: 8 * image.ClientWords, Entries: 1}
	shape := image.Shape{ValueSize: uint32(image.FloodSize), Entries: uint32(len(p.Floods))}
	numbers := image.Shape{ValueSize: 1 << 16, Entries: 1}
	has := func(protocol packet.Datagrams) bool {
		return slices.ContainsFunc(p.Floods, func(f ir.Flood) bool { return f.Protocol == protocol })
	}
	reads := slices.ContainsFunc(p.Floods, func(f ir.Flood) bool { return f.Protocol != packet.Generic })
	serves, admits := has(packet.A2S), has(packet.RakNet)
	shapes := map[string]image.Shape{
		image.ClientPorts: ports, image.PortFloods: numbers,
		image.FloodLimits: shape, image.FloodStates: {ValueSize: (image.MaxFloods + 1) * image.FloodStateSize, Entries: 1},
		image.Newcomers: {ValueSize: image.NewcomersSize, Entries: 1},
	}
	masks := image.Shape{ValueSize: (packet.MostID + 1) * image.IDMaskSize, Entries: 1}
	if has(packet.QUIC) {
		shapes[image.IDMasks] = masks
	}
	return component{
		constants: map[string]any{"floods": true, "reads_datagrams": reads, "challenges": serves || admits, "serves": serves, "admits": admits},
		shapes:    shapes,
		fill: func(memory map[string][]byte) error {
			if shapes[image.IDMasks] == masks {
				writeIDMasks(into(memory, image.IDMasks, masks))
			}
			to := into(memory, image.FloodLimits, shape)
			for i := range p.Floods {
				f := &p.Floods[i]
				record := image.FloodRecord{Start: uint32(f.Start), Stop: uint32(f.Stop), Each: uint32(f.Each), Proved: uint32(f.Proved), Answered: uint32(f.Answered), Protocol: uint32(f.Protocol)}
				if len(f.Again) > 0 {
					record.Again, record.Layers = uint32(f.Again[0]), uint32(len(f.Again))
				}
				image.Put(to[i*image.FloodSize:], record)
				for _, v := range f.Ports {
					for port := v.First; port <= v.Last; port++ {
						into(memory, image.PortFloods, numbers)[port-packet.PortUDP] = byte(i + 1)
					}
					setBits(into(memory, image.ClientPorts, ports), ir.Range{First: v.First - packet.PortUDP, Last: v.Last - packet.PortUDP})
				}
			}
			return nil
		},
	}, nil
}

// writeIDMasks writes the bit masks for identifiers, one for each length of an identifier.
func writeIDMasks(to []byte) {
	for length := range packet.MostID + 1 {
		for i := range length {
			to[length*image.IDMaskSize+i] = 0xff
		}
	}
}
