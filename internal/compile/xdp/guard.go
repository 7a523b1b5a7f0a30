// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

const (
	maxGuards = 255 // numbers of guards, from 1 on, are bytes in the map of ports

	guardLimit   = 1 // flags of struct guard
	guardObserve = 2
	guardNames   = 4
)

// guardsPart returns the component of guards: the verification of clients, and the limits of responses. slots has the
// counters of responses above the limit. egress reports whether the component needs the program for outgoing packets.
func guardsPart(p *ir.Program, slots []uint32) (_ component, egress bool, err error) {
	if len(p.Guards) == 0 {
		return component{}, false, nil
	}
	if n := len(p.Guards); n > maxGuards {
		return component{}, false, fmt.Errorf("%d services have a guard, at most %d can", n, maxGuards)
	}
	cookies := false
	for i := range p.Guards {
		g := &p.Guards[i]
		if n := len(g.Secrets); n > image.MaxSecrets {
			return component{}, false, fmt.Errorf("service %q has %d secrets of cookies, at most %d fit: the present one and the one before",
				g.Service, n, image.MaxSecrets)
		}
		cookies = cookies || len(g.Secrets) > 0
		egress = egress || g.Verify > 0 || g.Out >= 0 || g.Names != nil
	}
	return component{
		constants: map[string]any{"guarded": true, "verify_cookies": cookies},
		shapes: map[string]image.Shape{
			image.Guards:     {ValueSize: uint32(image.GuardSize), Entries: uint32(len(p.Guards))},
			image.GuardPorts: {ValueSize: packet.PortNone, Entries: 1},
		},
		fill: func(memory map[string][]byte) error {
			for i := range p.Guards {
				writeGuard(memory[image.Guards][i*image.GuardSize:], &p.Guards[i], slots[i])
				writePorts(memory[image.GuardPorts], p.Guards[i].Ports, byte(i+1))
			}
			return nil
		},
	}, egress, nil
}

// writeGuard writes struct guard.
func writeGuard(to []byte, g *ir.Guard, slot uint32) {
	guard := image.GuardRecord{NumSecrets: uint32(len(g.Secrets)), Verify: uint32((g.Verify + time.Second - 1) / time.Second), Slot: slot}
	for i, secret := range g.Secrets {
		order := binary.NativeEndian // the bytes of secrets and keys keep their order
		guard.Secrets[i] = [2]uint64{order.Uint64(secret[:]), order.Uint64(secret[8:])}
	}
	if g.Out >= 0 {
		guard.Flags |= guardLimit
		guard.Limit = uint32(g.Out)
	}
	if n := g.Names; n != nil {
		guard.Flags |= guardNames
		guard.Flooded, guard.GoOn, guard.NewNames = uint32(n.Flooded), uint32(n.GoOn), uint32(n.New)
	}
	if g.Observe {
		guard.Flags |= guardObserve
	}
	image.Put(to, guard)
}

// writePorts writes the number of a guard for its ports. If two services have the same port, the first service gets it, as with rules.
func writePorts(to []byte, ports []ir.Range, number byte) {
	for _, r := range ports {
		for port := r.First; port <= r.Last; port++ {
			if to[port] == 0 {
				to[port] = number
			}
		}
	}
}
