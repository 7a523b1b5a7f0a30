package xdp

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// floodPart is the component with the limits by which floods at UDP services are told, and how each stands.
func floodPart(p *ir.Program) (component, error) {
	if len(p.Floods) == 0 {
		return component{}, nil
	}
	if n := len(p.Floods); n > image.MaxFloods {
		return component{}, fmt.Errorf("%d UDP services are protected, at most %d can be", n, image.MaxFloods)
	}
	ports := image.Shape{ValueSize: 8 * image.ClientWords, Entries: 1}
	shape := image.Shape{ValueSize: uint32(image.FloodSize), Entries: uint32(len(p.Floods))}
	return component{
		constants: map[string]any{"floods": true},
		shapes: map[string]image.Shape{
			image.ClientPorts: ports, image.FloodLimits: shape, image.FloodStates: {ValueSize: image.MaxFloods * image.FloodStateSize, Entries: 1},
		},
		fill: func(memory map[string][]byte) error {
			to := into(memory, image.FloodLimits, shape)
			for i := range p.Floods {
				f := &p.Floods[i]
				image.Put(to[i*image.FloodSize:], image.FloodRecord{Start: uint32(f.Start), Stop: uint32(f.Stop), Each: uint32(f.Each)})
				for _, v := range f.Ports {
					setBits(into(memory, image.ClientPorts, ports), ir.Range{First: v.First - packet.PortUDP, Last: v.Last - packet.PortUDP})
				}
			}
			return nil
		},
	}, nil
}
